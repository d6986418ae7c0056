"""Wheels for the Python of another system, and the command that runs tests with it: for the tools that do so."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOOLS = ("pytest", "hypothesis", "pytest-timeout")
CANNOT_RUN = 77
"""The exit status if something is missing or cannot be downloaded."""


class Missing(Exception):
    """Something that must be installed on this system first."""


def downloaded(folder: Path, *arguments: str) -> list[Path]:
    """Returns what pip downloads to a folder."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(folder), *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return sorted(folder.iterdir())


def fetch_wheels(folder: Path, python: str, platforms: tuple[str, ...], *tools: str) -> None:
    """Unpacks wheels of the dependencies of hloom and its tests, and of other tools, for a Python on some platforms."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    options = ("--only-binary=:all:", f"--python-version={python}", *(f"--platform={name}" for name in platforms))
    for wheel in downloaded(folder.with_name("wheels"), *options, *project["dependencies"], *TOOLS, *tools):
        zipfile.ZipFile(wheel).extractall(folder)


def run_tests(prepare: Callable[[], Path]) -> int:
    """Runs pytest with this process's arguments by the command that `prepare` makes; returns the exit status."""
    try:
        command = prepare()
    except (Missing, subprocess.SubprocessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return CANNOT_RUN
    return subprocess.run([command, "-m", "pytest", "-p", "no:cacheprovider", *sys.argv[1:]], cwd=ROOT).returncode
