"""Builds sdist and wheel into `dist`, and runs the demo from the wheel: `python tools/check_release.py`.

The wheel is installed into an empty environment and the demo runs in an empty directory, independently of this
checkout. The contents of both archives are checked too.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
IN_SDIST = ("README.md", "docs/design.md", "docs/specification/examples.json", "tests/corpus/mandelbrot/module.hlo")
IN_WHEEL = ("hloom/py.typed", "hloom/backends/cpu/llvm/native/translator.py", "hloom/stablehlo/importer/rules/table.py")


def build() -> tuple[Path, Path]:
    """Builds and returns the source distribution and the wheel."""
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(ROOT / "dist"), str(ROOT)], check=True)
    (sdist,), (wheel,) = (list((ROOT / "dist").glob(pattern)) for pattern in ("*.tar.gz", "*.whl"))
    return sdist, wheel


def check_contents(sdist: Path, wheel: Path) -> None:
    with tarfile.open(sdist) as source, zipfile.ZipFile(wheel) as binary:
        packed = {name.partition("/")[2] for name in source.getnames()}
        installed = set(binary.namelist())
    sources = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src" / "hloom").rglob("*.py")}
    missing = [name for name in IN_SDIST if name not in packed]
    missing += [name for name in {*IN_WHEEL, *sources} if name not in installed]
    if missing:
        raise SystemExit(f"missing in the archives: {', '.join(sorted(missing))}")


def run_demo(wheel: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        venv.create(root / "venv", with_pip=True)
        python = root / "venv" / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", str(wheel)], check=True)
        for name in ("demo.py", "attention.hlo"):
            shutil.copy(ROOT / "examples" / name, root)
        subprocess.run([python, "demo.py"], cwd=root, check=True)
        subprocess.run([root / "venv" / "bin" / "hloom", "--version"], cwd=root, check=True)


if __name__ == "__main__":
    archives = build()
    check_contents(*archives)
    run_demo(archives[1])
    print("".join(f"{path.relative_to(ROOT)}: {path.stat().st_size / 2**20:.1f} MiB\n" for path in archives), end="")
