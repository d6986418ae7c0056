"""StableHLO with sizes known only to a call: embedded as text, imported for the sizes of the arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hloom as hl
from hloom.proto import module_from_bytes, module_to_bytes
from hloom.stablehlo.exporter.module import print_stablehlo

ROWS = """func.func @main(%x: tensor<?x3xf32>, %w: tensor<3x2xf32>) -> (tensor<?x2xf32>, tensor<?xi32>) {
  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x3xf32>) -> tensor<i32>
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %ok = stablehlo.compare GE, %n, %c1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
  stablehlo.custom_call @shape_assertion(%ok, %n) {api_version = 2 : i32, has_side_effect = true,
    error_message = "at least one row, got {0}"} : (tensor<i1>, tensor<i32>) -> ()
  %d = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<?x3xf32>, tensor<3x2xf32>) -> tensor<?x2xf32>
  %h:2 = call @half(%n, %d) : (tensor<i32>, tensor<?x2xf32>) -> (tensor<i32>, tensor<?x2xf32>)
  %v = stablehlo.reshape %h#0 : (tensor<i32>) -> tensor<1xi32>
  %i = stablehlo.dynamic_iota %v, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
  return %h#1, %i : tensor<?x2xf32>, tensor<?xi32>
}
func.func private @half(%n: tensor<i32>, %d: tensor<?x2xf32>) -> (tensor<i32>, tensor<?x2xf32>) {
  %two = stablehlo.constant dense<2> : tensor<i32>
  %m = stablehlo.divide %n, %two : tensor<i32>
  %one = stablehlo.constant dense<1.0> : tensor<f32>
  %a = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %b = stablehlo.constant dense<2> : tensor<1xi32>
  %s = stablehlo.concatenate %a, %b, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %r = stablehlo.dynamic_broadcast_in_dim %one, %s, dims = [] : (tensor<f32>, tensor<2xi32>) -> tensor<?x2xf32>
  %e = stablehlo.add %d, %r : tensor<?x2xf32>
  return %m, %e : tensor<i32>, tensor<?x2xf32>
}
"""
LOOP = """func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %r:2 = stablehlo.while(%i = %c0, %s = %x) : tensor<i32>, tensor<?xf32>
  cond {
    %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %v = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
    %k = stablehlo.dynamic_iota %v, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>
    %t = stablehlo.add %s, %k : tensor<?xf32>
    %c1 = stablehlo.constant dense<1> : tensor<i32>
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %t : tensor<i32>, tensor<?xf32>
  }
  return %r#1 : tensor<?xf32>
}
"""
WINDOW = """func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
  %w = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %one = stablehlo.constant dense<1> : tensor<1xi32>
  %m = stablehlo.subtract %w, %one : tensor<1xi32>
  %p = stablehlo.reshape %m : (tensor<1xi32>) -> tensor<1x1xi32>
  %o = stablehlo.constant dense<0> : tensor<1x1xi32>
  %pad = stablehlo.concatenate %p, %o, dim = 1 : (tensor<1x1xi32>, tensor<1x1xi32>) -> tensor<1x2xi32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %r = stablehlo.custom_call @stablehlo.dynamic_reduce_window(%x, %z, %w, %one, %one, %one, %pad)
    {called_computations = [@sum]} : (tensor<?xf32>, tensor<f32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>,
    tensor<1xi32>, tensor<1x2xi32>) -> tensor<?xf32>
  return %r : tensor<?xf32>
}
func.func private @sum(%a: tensor<f32>, %b: tensor<f32>) -> tensor<f32> {
  %s = stablehlo.add %a, %b : tensor<f32>
  return %s : tensor<f32>
}
"""


def ones(*sizes: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.ones(sizes, np.float32)


def check_rows(module: hl.Module) -> None:
    """Products and one more, beside the numbers below half of the rows."""
    run = hl.compile(module)
    for n in (2, 5):
        rows, half = run(ones(n, 3), ones(3, 2))
        assert rows.tolist() == [[4, 4]] * n and half.tolist() == list(range(n // 2))


def test_sizes_are_computed_from_those_of_the_arguments() -> None:
    """Through calls, whose arguments and results may be sizes."""
    check_rows(hl.parse(ROWS))


def test_the_program_survives_every_format(tmp_path: Path) -> None:
    """SL-25: HLO text, proto and StableHLO hold it as it was read."""
    module = hl.parse(ROWS)
    assert [str(shape) for shape in module.entry.parameter_shapes] == ["f32[?,3]", "f32[3,2]"]
    check_rows(hl.parse(module.to_text()))
    check_rows(module_from_bytes(module_to_bytes(module)))
    hl.save(module, tmp_path / "m.mlir")
    check_rows(hl.load(tmp_path / "m.mlir"))


def test_a_program_keeps_its_meshes_and_functions_without_a_body(tmp_path: Path) -> None:
    """SL-25."""
    others = '  sdy.mesh @mesh = <["a"=2]>\n  func.func private @elsewhere(tensor<f32>) -> tensor<f32>\n'
    text = "module @m {\n" + others + ROWS + "}\n"
    path = tmp_path / "m.mlir"
    hl.save(hl.parse(text), path)
    assert others in path.read_text()
    check_rows(hl.load(path))


def test_regions_capture_outer_sizes() -> None:
    """WHILE-1: the loop's body makes an array of a size that stands outside."""
    run = hl.compile(LOOP)
    for n in (1, 3):
        assert run(ones(n)).tolist() == [1 + n * k for k in range(n)]


def test_windows_whose_sizes_are_operands() -> None:
    """REDUCEWINDOW-1: a window as long as the array, padded below, gives running sums."""
    run = hl.compile(WINDOW)
    for n in (1, 4):
        assert run(ones(n)).tolist() == list(range(1, n + 1))


def test_assertions_of_sizes_are_errors_with_their_message() -> None:
    run = hl.compile(ROWS)
    with pytest.raises(hl.HloomError, match=r"(?s)at least one row, got 0.*%Arg_0 = f32\[0,3\]"):
        run(ones(0, 3), ones(3, 2))


def test_sizes_that_depend_on_values_are_an_error() -> None:
    text = """func.func @main(%x: tensor<?xf32>, %n: tensor<1xi32>) -> tensor<?xf32> {
  %c = stablehlo.constant dense<1.0> : tensor<f32>
  %b = stablehlo.dynamic_broadcast_in_dim %c, %n, dims = [] : (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>
  return %b : tensor<?xf32>
}"""
    with pytest.raises(hl.ParseError, match="depend on values at run time"):
        hl.compile(text)(ones(2), np.array([2], np.int32))


def test_hlo_with_open_sizes_becomes_stablehlo(tmp_path: Path) -> None:
    module = hl.parse("HloModule m\nENTRY e {\n x = f32[?,3] parameter(0)\n ROOT r = f32[?,3] negate(x)\n}")
    hl.save(module, tmp_path / "m.mlir")
    assert "tensor<?x3xf32>" in (tmp_path / "m.mlir").read_text()
    assert hl.compile(hl.load(tmp_path / "m.mlir"))(ones(2, 3)).tolist() == [[-1, -1, -1]] * 2


def test_a_dimension_set_to_its_bound_stays_dynamic_if_its_type_says_so() -> None:
    """SETDIMENSIONSIZE-5: the bound as a constant makes a dimension static, or not: the result type decides."""
    for kept, result in (("<=3", "f32[1,<=3]"), ("3", "f32[1,3]")):
        text = f"""ENTRY e {{ x = f32[3] parameter(0)
          n = s32[] parameter(1)
          c = s32[] constant(3)
          d = f32[<=3] set-dimension-size(x, n), dimensions={{0}}
          s = f32[{kept}] set-dimension-size(d, c), dimensions={{0}}
          ROOT r = {result} broadcast(s), dimensions={{1}} }}"""
        again = hl.parse(print_stablehlo(hl.parse(text)))
        assert again.entry.result_shape.to_text(layouts=False) == result
        x = np.array([1, 2, 3], np.float32)
        assert np.array_equal(hl.compile(again)(x, np.int32(3)), [[1, 2, 3]])
