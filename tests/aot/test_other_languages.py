"""The programs in other languages on the page about deployment, where there is a compiler."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import hloom as hl
from conftest import ROOT
from hlo_text import module_text
from hloom.aot import Emit

PREDICT = module_text(
    "x = f32[4,3] parameter(0)\nw = f32[3,2] parameter(1)\n"
    "d = f32[4,2] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\nROOT r = f32[4,2] tanh(d)"
)
CPP = """
#include <array>
#include <iostream>
#include "predict.h"
int main() {
  std::array<float, 12> x;
  std::array<float, 6> w;
  std::array<float, 8> result;
  x.fill(1), w.fill(0.25f);
  int status = predict(x.data(), w.data(), result.data(), nullptr, nullptr);
  std::cout << status << " " << result[7];
}
"""


def printed(command: list[str], folder: Path) -> list[float]:
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    done = subprocess.run(["./main"], cwd=folder, check=True, capture_output=True, text=True)
    return [float(word) for word in re.findall(r"[\d.]+", done.stdout)]


@pytest.mark.long
def test_rust(tmp_path: Path) -> None:
    rustc = shutil.which("rustc") or shutil.which(str(Path.home() / ".cargo" / "bin" / "rustc"))
    if rustc is None:
        pytest.skip("no Rust compiler")
    hl.build({"predict": PREDICT}, tmp_path / "out", emit=Emit.STATIC, threads=1)
    (program,) = re.findall(r"```rust\n(.*?)```", (ROOT / "docs" / "deploy.md").read_text(), re.S)
    (tmp_path / "main.rs").write_text(program)
    status, *results = printed([rustc, "main.rs", "-L", "out", "-l", "static=predict"], tmp_path)
    assert status == 0 and np.allclose(results, [np.tanh(0.75)] * 8)


@pytest.mark.long
def test_cpp(tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("no C++ compiler")
    library = hl.build({"predict": PREDICT}, tmp_path, threads=1)
    (tmp_path / "main.cpp").write_text(CPP)
    status, result = printed(["g++", "main.cpp", *library.binaries, "-o", "main"], tmp_path)
    assert status == 0 and np.isclose(result, np.tanh(0.75))
