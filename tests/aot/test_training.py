"""The example in C: a training loop over functions that are built ahead of time."""

from __future__ import annotations

import runpy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hloom as hl
from conftest import ROOT

EPOCHS = 30


def trained_by_the_jit(example: dict[str, Any]) -> str:
    """The text that the program in C prints, computed by compiled modules."""
    run = {name: hl.compile(module) for name, module in example["modules"]().items()}
    images, labels = example["data"]()
    rest, batch = len(images) - example["TESTED"], example["BATCH"]
    hidden, output = run["init"](np.uint32(0))
    for _ in range(EPOCHS):
        for first in range(0, rest - batch + 1, batch):
            chosen = slice(first, first + batch)
            hidden, output, loss = run["step"](hidden, output, images[chosen], labels[chosen])
    right = int((run["predict"](hidden, output, images[rest:]) == labels[rest:]).sum())
    return f"loss {float(loss).hex()}, {right} of {example['TESTED']} digits are recognised\n"


@pytest.mark.long
@pytest.mark.skipif(shutil.which("cc") is None or shutil.which("make") is None, reason="no C compiler")
def test_a_training_loop_in_c_computes_what_the_jit_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("jax", "sklearn"):
        pytest.importorskip(package)
    example = runpy.run_path(str(ROOT / "examples" / "c" / "digits.py"))
    monkeypatch.chdir(tmp_path)
    example["main"]()
    folder = tmp_path / "build" / "c"
    subprocess.run(["make", "-s", "CFLAGS=-O2 -Wall -Wextra -Werror"], cwd=folder, check=True)
    done = subprocess.run(["./example"], cwd=folder, check=True, capture_output=True, text=True)
    want = trained_by_the_jit(example)
    # Python writes all 13 digits of a double, C as few as are needed.
    loss, rest = done.stdout.removeprefix("loss ").split(", ")
    assert f"loss {float.fromhex(loss).hex()}, {rest}" == want
    assert int(rest.split()[0]) > 300
