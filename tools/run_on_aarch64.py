"""Runs tests on AArch64 under an emulator: `python tools/run_on_aarch64.py tests/backends/cpu -m "not long"`.

The first run downloads an arm64 Python of Debian with its libraries, and arm64 wheels of hloom's dependencies, into a
folder, without changing this system. The emulator is QEMU for user programs (`apt install qemu-user-static`), on a
Debian or a similar system. All arguments go to pytest. Tests take about twenty times as long as natively.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from foreign_python import ROOT, Missing, fetch_wheels, run_tests

FOLDER = ROOT / "build" / "aarch64"
PLATFORMS = ("manylinux2014_aarch64", "manylinux_2_17_aarch64", "manylinux_2_27_aarch64", "manylinux_2_28_aarch64")
BLAS_PROCESSOR = "NEOVERSEN1"
"""The kernels that OpenBLAS uses. Those that it selects for the emulated processor are wrong after products of NaN."""
SITECUSTOMIZE = """import os, sys
sys.executable = os.environ["HLOOM_PYTHON"]  # processes that tests start are emulated too
"""


def emulator() -> str:
    for name in ("qemu-aarch64-static", "qemu-aarch64"):
        if found := shutil.which(name):
            return found
    raise Missing("there is no qemu-aarch64: apt install qemu-user-static")


def fetch_system(folder: Path) -> None:
    """Unpacks Debian's Python for arm64 and its dependencies into `folder`; apt runs with a separate state."""
    if not shutil.which("apt-get"):
        raise Missing("there is no apt-get, which fetches an arm64 Python")
    state = folder.with_name("apt")
    for part in ("lists/partial", "archives/partial"):
        (state / part).mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    options = {
        "APT::Architecture": "arm64", "APT::Architectures": "arm64", "APT::Install-Recommends": "0",
        "APT::Sandbox::User": "root", "Debug::NoLocking": "1", "Dir::State": state,
        "Dir::State::status": state / "status", "Dir::State::lists": state / "lists",
        "Dir::Cache": state, "Dir::Cache::archives": state / "archives",
    }  # fmt: skip
    apt = ["apt-get", "-q", *(part for key, value in options.items() for part in ("-o", f"{key}={value}"))]
    for command in (["update"], ["install", "--download-only", "-y", "python3", "libstdc++6"]):
        subprocess.run([*apt, *command], check=True, stdout=subprocess.DEVNULL)
    for package in sorted((state / "archives").glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", str(package), str(folder)], check=True)


def prepare() -> Path:
    """Returns a command that runs Python on AArch64; downloads what is missing."""
    qemu, system, site, command = emulator(), FOLDER / "system", FOLDER / "site", FOLDER / "python"
    if not command.exists():
        shutil.rmtree(FOLDER, ignore_errors=True)
        fetch_system(system)
        binary = next(path for path in sorted((system / "usr" / "bin").glob("python3.*")) if path.suffix[1:].isdigit())
        fetch_wheels(site, binary.name.removeprefix("python"), PLATFORMS)
        (site / "sitecustomize.py").write_text(SITECUSTOMIZE)
        paths = ":".join(map(str, (site, ROOT / "src", ROOT / "tests", ROOT / "tools")))
        command.write_text(
            f'#!/bin/sh\nexport HLOOM_PYTHON="{command}" PYTHONPATH="{paths}:$PYTHONPATH" PYTHONDONTWRITEBYTECODE=1\n'
            f"export OPENBLAS_CORETYPE={BLAS_PROCESSOR}\n"
            f'exec {qemu} -L "{system}" "{binary}" "$@"\n'
        )
        command.chmod(0o755)
    return command


if __name__ == "__main__":
    sys.exit(run_tests(prepare))
