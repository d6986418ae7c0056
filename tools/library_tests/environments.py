"""Virtual environments of the libraries, on top of one with JAX and hloom, and the sources that hold their tests."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from library_tests.libraries import Library

BASE = ("pytest", "pytest-timeout", "jax~=0.10.2")
INSTALLED = "requirements.txt"


class Unavailable(Exception):
    """A library, or its source, that cannot be installed; the message ends with the output of pip or git."""


def python(folder: Path, library: Library, own: Path) -> Path:
    """Returns the interpreter of a library's environment, which is created if necessary."""
    base = _environment(folder / "base", (*BASE, "--editable", str(own)))
    return _environment(folder / library.name, library.requirements, base)


def _environment(path: Path, requirements: tuple[str, ...], base: Path | None = None) -> Path:
    """Creates a virtual environment with the requirements, which sees the packages of another one; returns its
    interpreter.
    """
    interpreter, installed = path / "bin" / "python", path / INSTALLED
    if installed.exists() and installed.read_text().splitlines() == list(requirements):
        return interpreter
    _call(sys.executable, "-m", "venv", "--clear", *(["--without-pip"] if base else []), path)
    if base is not None:
        link = f"import site; site.addsitedir({str(_packages(base))!r})\n"
        (_packages(interpreter) / "base.pth").write_text(link)
    _call(interpreter, "-m", "pip", "install", "--quiet", *requirements)
    installed.write_text("".join(f"{line}\n" for line in requirements))
    return interpreter


def _packages(interpreter: Path) -> Path:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return interpreter.parents[1] / "lib" / version / "site-packages"


def version(interpreter: Path, distribution: str) -> str:
    """Returns the installed version of a distribution."""
    program = f"import importlib.metadata as m; print(m.version({distribution!r}))"
    return _call(interpreter, "-c", program).strip()


def source(folder: Path, library: Library, interpreter: Path) -> Path:
    """Returns the unpacked source distribution of the installed version, or a clone of the repository."""
    path = folder / library.name
    if library.repository and not path.exists():
        _call("git", "clone", "--quiet", "--depth=1", "--recurse-submodules", library.repository, path)
    elif library.files and not path.exists():
        wanted = f"{library.distribution}=={version(interpreter, library.distribution)}"
        with tempfile.TemporaryDirectory() as scratch:
            options = ("--quiet", "--no-deps", f"--no-binary={library.distribution}", "--dest", scratch)
            # Not with the library's interpreter, whose packages would conflict with those of the build.
            _call(sys.executable, "-m", "pip", "download", *options, wanted)
            (archive,) = Path(scratch).glob("*.tar.gz")
            with tarfile.open(archive) as opened:
                opened.extractall(scratch, filter="data")
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(Path(scratch, archive.name.removesuffix(".tar.gz")), path)
    return path


def _call(*command: str | Path) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines()
        raise Unavailable(f"{' '.join(map(str, command[1:4]))} ..: {' '.join(words[-3:])}")
    return done.stdout
