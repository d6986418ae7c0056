"""What all tests share: where the development material lies, and how many generated cases to run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared"

settings.register_profile("default", max_examples=50, deadline=None)
settings.register_profile("long", max_examples=1000, deadline=None)
settings.load_profile("long" if os.environ.get("HLOOM_LONG") else "default")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The development material beside the project; tests that need it are skipped where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("needs the development material in ../shared, which is not here")
    return SHARED
