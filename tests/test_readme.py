"""The README, pasted: its blocks of Python line by line into a fresh interpreter, its command lines into a shell."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT

README = (ROOT / "README.md").read_text()
TOUR, WITH_JAX = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
COMMANDS = re.findall(r"^    (hloom .*?)(?: +#.*)?$", README, re.MULTILINE)
NO_JAX = "import sys\nsys.modules['jax'] = sys.modules['jaxlib'] = None\n"
"""A sitecustomize.py, which Python imports first: JAX is not there."""


def pasted(text: str, folder: Path, has_jax: bool) -> str:
    """Pastes lines into `python -i` in an empty folder; returns what it writes to standard error, without prompts."""
    if not has_jax:
        (folder / "sitecustomize.py").write_text(NO_JAX)
    path = os.pathsep.join([str(folder), str(ROOT / "src")])
    environment = os.environ | {"PYTHONPATH": path, "BROWSER": "true", "PYTHON_BASIC_REPL": "1"}
    command = [sys.executable, "-i", "-q"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, cwd=folder, env=environment, timeout=250)
    return re.sub(r"^(>>> |\.\.\. )+", "", done.stderr, flags=re.MULTILINE).strip()


@pytest.mark.long
@pytest.mark.parametrize("has_jax", [True, False])
def test_the_tour_and_its_commands_run(has_jax: bool, tmp_path: Path) -> None:
    assert pasted(TOUR, tmp_path, has_jax) == ""
    assert len(COMMANDS) == 4
    for line in COMMANDS:
        words = f"{sys.executable} -m {line}"
        done = subprocess.run(words, shell=True, capture_output=True, text=True, cwd=tmp_path, timeout=250)
        assert done.returncode == 0, done
    assert (tmp_path / "axpy.html").is_file()


@pytest.mark.long
def test_functions_of_jax_run_or_the_error_says_what_to_install(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    assert pasted(WITH_JAX, tmp_path, has_jax=True) == ""
    without = pasted(WITH_JAX.replace("import jax.numpy as jnp\n", ""), tmp_path, has_jax=False)
    assert "pip install jax" in without
