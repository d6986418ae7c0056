"""The gallery: each program of examples/gallery with the picture that it makes."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from handbook.markdown import code
from handbook.specification import ROOT

PROGRAMS = ROOT / "examples" / "gallery"
_HEAD = """# Gallery

Whole programs and the pictures that they make. They are the files of `examples/gallery/`, which the building of this
page has run.
"""
_TAIL = """## Programs with a window of their own

- `examples/web/fluid.py` builds a page with a fluid to stir with the mouse: a step of a simulation in JAX, as
  WebAssembly.
- `examples/web/digits.py` trains a network on hloom and builds a page that reads handwritten digits.
- `examples/c/digits.py` builds a library with which a program in C trains the same network.
- `examples/compare_training.py` trains a transformer and a convolutional network on hloom and on XLA, and plots both
  losses.
"""


def run(programs: Iterable[Path], folder: Path) -> None:
    """Runs programs; each writes a picture of its name to `folder`."""
    environment = os.environ | {"MPLBACKEND": "Agg", "HLOOM_NUM_THREADS": "1"}
    for path in programs:
        subprocess.run([sys.executable, str(path)], cwd=folder, env=environment, check=True)


def gallery(programs: Iterable[Path]) -> str:
    """Returns the Markdown of the page."""
    return "\n".join([_HEAD, *map(_program, programs), _TAIL])


def _program(path: Path) -> str:
    text = path.read_text()
    title, _, rest = (ast.get_docstring(ast.parse(text)) or "").partition(": ")
    picture = f"![{title}]({path.stem}.png)"
    return f"## {title}\n\n{picture}\n\n{rest[0].upper()}{rest[1:]}\n\n{code('python', _body(text))}"


def _body(text: str) -> str:
    """The text of a program without its docstring."""
    end = ast.parse(text).body[0].end_lineno or 0
    return "\n".join(text.splitlines()[end:]).strip()
