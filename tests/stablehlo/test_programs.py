"""Programs of the corpus, imported from StableHLO, compute the same as XLA; damaged text gives hloom errors."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

import hloom as hl
from conftest import ROOT
from hloom.errors import HloomError
from hloom.fuzz.damage import mutate_text
from hloom.stablehlo.importer.module import parse_stablehlo
from test_corpus import STORED, check_results, load_case

PROGRAMS = [case for case in STORED if (case / "module.mlir").exists()]
CASES = int(os.environ.get("HLOOM_CASES", "6000"))


@pytest.mark.sampled(60)
@pytest.mark.parametrize("case", PROGRAMS, ids=lambda case: case.name)
def test_results_are_those_of_xla(case: Path) -> None:
    meta, module, inputs = load_case(case)
    imported = parse_stablehlo((case / "module.mlir").read_text())
    assert imported.entry.result_shape.compatible(module.entry.result_shape)
    check_results(case.name, meta, inputs, hl.compile(imported, backend="interpreter").run_replicas(inputs))


@pytest.mark.long
@pytest.mark.parametrize("case", PROGRAMS, ids=lambda case: case.name)
def test_compiled_results_are_those_of_xla(case: Path) -> None:
    meta, _, inputs = load_case(case)
    imported = parse_stablehlo((case / "module.mlir").read_text())
    check_results(case.name, meta, inputs, hl.compile(imported, backend="cpu").run_replicas(inputs))


def texts() -> list[str]:
    own = sorted((ROOT / "tests" / "stablehlo").glob("*.mlir"))
    stored = [case / "module.mlir" for case in PROGRAMS]
    return [path.read_text() for path in [*own, *stored] if path.stat().st_size < 20_000] or [SMALL]


SMALL = """module @m attributes {mhlo.num_replicas = 1 : i32} {
  func.func public @main(%a: tensor<2x3xf32> {mhlo.sharding = "{replicated}"}) -> (tensor<3xf32>) {
    %c = stablehlo.constant dense<[[1.0, 2.0, 0x7F800000], [1.5, -2.0, 1e3]]> : tensor<2x3xf32>
    %x = stablehlo.constant dense<0.0> : tensor<f32>
    %0 = stablehlo.add %a, %c {k = [1, "a", array<i64: 1>]} : tensor<2x3xf32> loc("f"("x.py":1:2))
    %1 = stablehlo.reduce(%0 init: %x) applies stablehlo.add across dimensions = [0]
      : (tensor<2x3xf32>, tensor<f32>) -> tensor<3xf32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [0] : (tensor<3xf32>) -> tensor<3x2xf32>
    %3 = stablehlo.slice %2 [0:3, 0:1] : (tensor<3x2xf32>) -> tensor<3x1xf32>
    %4 = stablehlo.reshape %3 : (tensor<3x1xf32>) -> tensor<3xf32>
    return %4 : tensor<3xf32>
  }
}
"""


def damage(first: int, count: int) -> None:
    programs = [*texts(), SMALL]
    for seed in range(first, first + count):
        text = mutate_text(programs[seed % len(programs)], np.random.default_rng(seed))
        started = time.monotonic()
        try:
            parse_stablehlo(text)
        except HloomError as error:
            assert str(error)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
        assert time.monotonic() - started < 20


def test_damaged_text_gives_errors_of_hloom() -> None:
    damage(0, 300)


@pytest.mark.long
@pytest.mark.parametrize("block", range(max(CASES // 1000, 1)))
def test_much_damaged_text_gives_errors_of_hloom(block: int) -> None:
    damage(1000 + 1000 * block, 1000)
