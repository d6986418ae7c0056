"""tools/stablehlo_checks: programs of StableHLO's tests, whose checks hold or do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from stablehlo_checks import run_file

SUM = """func.func @main() {
  %0 = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %1 = stablehlo.add %0, %0 : tensor<2xf32>
  CHECK
  func.return
}
"""
REPLICAS = """func.func @id() -> tensor<ui32> {
  %0 = stablehlo.replica_id : tensor<ui32>
  return %0 : tensor<ui32>
}
func.func @main() {
  %results:2 = "interpreter.run_parallel"() {programs = [[@id], [@id]]} : () -> (tensor<ui32>, tensor<ui32>)
  check.expect_eq_const %results#0, dense<0> : tensor<ui32>
  check.expect_eq_const %results#1, dense<1> : tensor<ui32>
  func.return
}
"""


@pytest.mark.parametrize(
    "check, outcome",
    [
        ("check.expect_eq_const %1, dense<[2.0, 4.0]> : tensor<2xf32>", ""),
        ("check.expect_eq_const %1, dense<[2.0, 5.0]> : tensor<2xf32>", "1 of 2 differ; at (1,) got 4.0, not 5.0"),
        ("check.expect_almost_eq_const %1, dense<[2.1, 4.0]> : tensor<2xf32> {tolerance = 0.2 : f64}", ""),
        ("check.expect_almost_eq %1, %1, tolerance = 0.1 : tensor<2xf32>", ""),
        ("", "no checks"),
    ],
)
def test_checks_hold_or_say_what_differs(check: str, outcome: str, tmp_path: Path) -> None:
    file = tmp_path / "sum.mlir"
    file.write_text(SUM.replace("CHECK", check))
    found = run_file(file, "interpreter")
    assert found == outcome if outcome in ("", "no checks") else outcome in found


def test_programs_run_on_several_devices(tmp_path: Path) -> None:
    file = tmp_path / "ids.mlir"
    file.write_text(f"{REPLICAS}\n// -----\n{SUM.replace('CHECK', 'check.expect_eq %1, %1 : tensor<2xf32>')}")
    assert run_file(file, "interpreter") == ""
