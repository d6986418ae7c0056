"""Times the first minutes of a new user, from a clone to a profile of an own program: `python tools/first_minutes.py`.

The lines are those of the README, in a fresh environment; packages come from the package index, or the cache of pip.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def steps(folder: Path) -> list[tuple[str, Sequence[str]]]:
    """Returns what each step is, and its command."""
    clone, binaries = folder / "hloom", folder / "venv" / "bin"
    tour = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]
    program = tour.partition("\nprint(hl.profile")[0]
    return [
        ("clone", ["git", "clone", "--quiet", "--depth", "1", f"file://{ROOT}", str(clone)]),
        ("new environment", [sys.executable, "-m", "venv", str(folder / "venv")]),
        ("pip install .", [str(binaries / "python"), "-m", "pip", "install", "--quiet", str(clone)]),
        ("the README's program: build, print, compile, run, save", [str(binaries / "python"), "-c", program]),
        ("hloom profile axpy.mlir", [str(binaries / "hloom"), "profile", "axpy.mlir", "--random", "0"]),
    ]


def main() -> None:
    """Runs the steps and prints their seconds."""
    total = 0.0
    with tempfile.TemporaryDirectory() as name:
        for what, command in steps(Path(name)):
            started = time.perf_counter()
            subprocess.run(command, cwd=name, check=True, stdout=subprocess.DEVNULL)
            seconds = time.perf_counter() - started
            total += seconds
            print(f"{seconds:6.1f} s  {what}", flush=True)
    print(f"{total:6.1f} s")


if __name__ == "__main__":
    main()
