"""Runs programs in child processes whose JAX platform is hloom."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("jax", reason="needs JAX")
if not any(entry.value == "hloom.jax_plugin" for entry in importlib.metadata.entry_points(group="jax_plugins")):
    pytest.skip("hloom is not installed as a JAX plugin: pip install -e .", allow_module_level=True)


def run(program: str, devices: int = 1) -> str:
    """Runs a program and returns its output; fails if the program does."""
    start = "import jax, jax.numpy as jnp, numpy as np\nassert jax.default_backend() == 'hloom'\n"
    ended = subprocess.run(
        [sys.executable, "-c", start + textwrap.dedent(program)],
        env={**os.environ, "JAX_PLATFORMS": "hloom", "HLOOM_NUM_DEVICES": str(devices)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout
