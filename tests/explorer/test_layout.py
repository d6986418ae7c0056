"""The layout of graphs: nodes do not overlap, and no edge runs through one."""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

CASES = int(os.environ.get("HLOOM_CASES", "2000"))
NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="there is no node here")


def check(count: int, seed: int) -> None:
    assert NODE is not None
    layered = (files("hloom.explorer") / "assets" / "layered.js").read_text()
    script = layered + (Path(__file__).parent / "layout_test.js").read_text()
    done = subprocess.run([NODE, "-e", script, str(count), str(seed)], capture_output=True, text=True, timeout=250)
    assert (done.stdout.strip(), done.stderr) == (str(count), "")


def test_edges_of_random_boxes_run_through_no_node() -> None:
    check(40, 1)


@pytest.mark.long
def test_edges_of_many_random_boxes_run_through_no_node() -> None:
    check(CASES, 2)
