"""XLA's list of benchmarks: names, arguments and the page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from benchmarks.kept_kernels import KeptKernels
from benchmarks.measure import Result, Side
from benchmarks.xla.modules import FOLDER, RECIPES, arguments, listed, parameters
from benchmarks.xla.page import page

import hloom as hl

LIST = 'load("//a:b.bzl", "NAME")\nvisibility(NAME)\nREGULAR = [\n    "one.hlo",  # kept\n]\nSLOW = ["two.2.hlo"]\n'


def _checkout(folder: Path) -> Path:
    for name in ("hlo", "huge_hlo"):
        (folder / FOLDER / name).mkdir(parents=True)
    (folder / FOLDER / "hlo" / "hlo_files.bzl").write_text(LIST)
    (folder / FOLDER / "huge_hlo" / "hlo_files.bzl").write_text('HUGE = ["three.hlo"]')
    return folder


def test_names_are_those_of_all_lists(tmp_path: Path) -> None:
    modules = listed(_checkout(tmp_path))
    assert [module.name for module in modules] == ["one", "two.2", "three"]
    assert modules[2].path == tmp_path / FOLDER / "huge_hlo" / "three.hlo"


def test_arguments_have_their_types_and_repeat() -> None:
    module = hl.parse(
        "HloModule m ENTRY e { a = bf16[300,2] parameter(0) b = s4[50] parameter(1) c = pred[] parameter(2) "
        "d = u8[9] parameter(3) e = f64[7] parameter(4) ROOT r = f64[7] negate(e) }"
    )
    found = parameters(module)
    for recipe in RECIPES:
        drawn, again = ([*arguments(found, recipe)] for _ in range(2))
        assert [(array.dtype.name, array.shape) for array in drawn] == [(name, sizes) for name, sizes in found]
        assert all(map(np.array_equal, drawn, again))
        assert np.isfinite(drawn[0].astype(np.float32)).all()
        assert drawn[1].astype(int).min() >= 0
        assert recipe.is_positive == bool((drawn[4] >= 0).all())


def test_page_names_what_was_not_measured(tmp_path: Path) -> None:
    modules = listed(_checkout(tmp_path))
    modules[2].path.touch()
    result = Result("one", Side(1.0, 0.5, 0.5, 10), Side(3.0, 3.0, 1.0, 40), 0.25, 1.5, 0.0)
    text = page(modules, [result], KeptKernels(tmp_path, 9.2, 361, 800_000))
    assert "| one | 1e+03 | 3e+03 | 1e+03 | 4e+03 | 3.00 | 0.25 | 0.50 | 0.19 | 0.25 |" in text
    assert "- two.2: the checkout lacks its text" in text
    assert "- three: needs more memory" in text
