"""The examples in the docstrings of public names run, and print what they show."""

from __future__ import annotations

import doctest
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hloom as hl
from handbook.public_names import PUBLIC
from hloom.types import PrimitiveType

EXAMPLES = {
    name: test
    for name, value in PUBLIC.items()
    if not isinstance(value, (PrimitiveType, dict, str))
    for test in doctest.DocTestFinder(recurse=False).find(inspect.unwrap(value), name, module=False)
}
SLOW = {"hloom.explore", "hloom.from_jax", "hloom.profile"}
"""Examples that import JAX, measure the limits of the machine, or explore."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name in SLOW or "profiler" in name)) for name in EXAMPLES]
)
def test_example(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    test: Any = EXAMPLES[name]
    assert test.examples, f"{name} has no example"
    test.globs = {"hl": hl, "np": np}
    failures: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=failures.append)
    assert not failures, "".join(failures)
