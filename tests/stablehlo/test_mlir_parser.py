"""MLIR text: types, attributes, constants, locations, regions; errors with line and column."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from hloom.errors import ParseError
from hloom.stablehlo.mlir.attribute_reader import AttributeReader
from hloom.stablehlo.mlir.ir import (
    DenseArray,
    DenseElements,
    DialectAttribute,
    DialectType,
    Number,
    QuantizedType,
    ScalarType,
    Symbol,
    TensorType,
    TupleType,
)
from hloom.stablehlo.mlir.parser import parse_attribute
from hloom.stablehlo.mlir.text import parse_mlir
from hloom.stablehlo.mlir.types import I64, type_text

F32 = ScalarType("f32")


def read_type(text: str) -> Any:
    return AttributeReader(text).type()


@pytest.mark.parametrize(
    "text",
    [
        "tensor<f32>",
        "tensor<2x3xf8E4M3FN>",
        "tensor<4xcomplex<f64>>",
        "tensor<?x3xi1>",
        "tensor<?x3xi1, #stablehlo.bounds<4, ?>>",
        "tuple<tensor<2xui8>, tuple<>>",
        "!stablehlo.token",
        "tensor<2x!quant.uniform<i8:f32, 0.5:-20>>",
        "tensor<2x!quant.uniform<i8<-127:127>:f32:0, {0.5,0.25:3}>>",
        "(tensor<f32>, i64) -> (tensor<f32>, index)",
        "() -> tensor<f32>",
    ],
)
def test_types_print_as_they_were_read(text: str) -> None:
    assert type_text(read_type(text)) == text


def test_types_are_data() -> None:
    assert read_type("tensor<2x?xf32>") == TensorType((2, None), F32)
    assert read_type("tuple<tensor<f32>>") == TupleType((TensorType((), F32),))
    assert read_type("!stablehlo.token") == DialectType("stablehlo.token")
    quantised = QuantizedType(ScalarType("ui8"), F32, (0.5,), (0,))
    assert read_type("tensor<1x!quant.uniform<u8:f32, 0.5>>") == TensorType((1,), quantised)
    bounded = "tensor<?xf32, #stablehlo.type_extensions<bounds = [4]>>"
    assert read_type(bounded) == TensorType((None,), F32, (4,))


@pytest.mark.parametrize(
    "text, value",
    [
        ("true", True),
        ("unit", None),
        ('"a\\0Ab\\22"', 'a\nb"'),
        ('"\\\\41\\41b"', "\\41Ab"),
        ("-3 : i32", Number(-3, ScalarType("i32"))),
        ("7", Number(7, I64)),
        ("1.5e-3 : f32", Number(1.5e-3, F32)),
        ("0x3FC00000 : f32", Number(1.5, F32)),
        ("@f", Symbol("f")),
        ('@"a b"::@c', Symbol("c")),
        ("array<i64: 1, -2>", DenseArray(I64, (1, -2))),
        ("array<i1: true, false>", DenseArray(ScalarType("i1"), (True, False))),
        ("array<i64>", DenseArray(I64, ())),
        ("[1, true]", [Number(1, I64), True]),
        ('{a, "b.c" = 2}', {"a": None, "b.c": Number(2, I64)}),
        ("#stablehlo<comparison_direction LT>", DialectAttribute("stablehlo.comparison_direction", "LT")),
        ("#stablehlo.conv<[b, f]x[o, i]->[b, f]>", DialectAttribute("stablehlo.conv", "[b, f]x[o, i]->[b, f]")),
        (
            "#stablehlo.channel_handle<handle = 1, type = 0>",
            DialectAttribute("stablehlo.channel_handle", {"handle": Number(1, I64), "type": Number(0, I64)}),
        ),
        ('#sdy.sharding<@m, [{"x"}, {}]>', DialectAttribute("sdy.sharding", '@m, [{"x"}, {}]')),
        ("tensor<2xf32>", TensorType((2,), F32)),
        ('loc("f"("x.py":3:4))', '"f"("x.py":3:4)'),
    ],
)
def test_attributes(text: str, value: Any) -> None:
    assert parse_attribute(text) == value


@pytest.mark.parametrize(
    "text, values",
    [
        ("dense<[[1, 2], [3, 4]]> : tensor<2x2xi32>", np.array([[1, 2], [3, 4]], np.int32)),
        ("dense<7> : tensor<2x3xui8>", np.full((2, 3), 7, np.uint8)),
        ("dense<[255, -1]> : tensor<2xui8>", np.array([255, 255], np.uint8)),
        ("dense<> : tensor<0x2xf32>", np.zeros((0, 2), np.float32)),
        ("dense<[]> : tensor<0xi32>", np.zeros(0, np.int32)),
        ("dense<[[], []]> : tensor<2x0xi32>", np.zeros((2, 0), np.int32)),
        ("dense<[true, false, true]> : tensor<3xi1>", np.array([True, False, True])),
        ("dense<[1.5, 0x7F800000, -1e2]> : tensor<3xf32>", np.array([1.5, np.inf, -100], np.float32)),
        ("dense<0xFF80> : tensor<bf16>", np.array(-np.inf, ml_dtypes.bfloat16)),
        ("dense<[(1.0, 2.0), (0x7F800000, -1.0)]> : tensor<2xcomplex<f32>>", np.array([1 + 2j, complex(np.inf, -1)])),
        ("dense<(1.0, -2.0)> : tensor<2xcomplex<f64>>", np.array([1 - 2j] * 2)),
        ("dense<[-8, 7]> : tensor<2xi4>", np.array([-8, 7]).astype(ml_dtypes.int4)),
        ('dense<"0x0000803F00000040"> : tensor<2xf32>', np.array([1, 2], np.float32)),
        ('dense<"0x0000803F"> : tensor<3xf32>', np.ones(3, np.float32)),
        ('dense<"0x05"> : tensor<3xi1>', np.array([True, False, True])),
        ('dense<"0x010001"> : tensor<3xi1>', np.array([True, False, True])),
        ('dense<"0x0FFE"> : tensor<2xi4>', np.array([-1, -2]).astype(ml_dtypes.int4)),
        ("dense<[0.5, 6.0]> : tensor<2xf4E2M1FN>", np.array([0.5, 6]).astype(ml_dtypes.float4_e2m1fn)),
    ],
)
def test_constants(text: str, values: Any) -> None:
    attribute = parse_attribute(text)
    assert isinstance(attribute, DenseElements)
    assert attribute.values.shape == values.shape
    np.testing.assert_array_equal(attribute.values.astype(np.complex128), values.astype(np.complex128))


def test_resources_at_the_end_of_the_text() -> None:
    text = """func.func @main() -> tensor<2xi32> {
      %0 = stablehlo.constant dense_resource<data> : tensor<2xi32>
      return %0 : tensor<2xi32>
    }
    {-# dialect_resources: { builtin: { data: "0x040000000100000002000000" } } #-}
    """
    (function,) = parse_mlir(text).regions[0].block.operations
    value = function.regions[0].block.operations[0].attributes["value"]
    assert isinstance(value, DenseElements) and value.values.tolist() == [1, 2]
    with pytest.raises(ParseError, match=r"2:45: the resource 'data' is not in this text"):
        parse_mlir(text.partition("{-#")[0])


def test_locations_are_resolved_wherever_they_are_defined() -> None:
    text = """
    #loc1 = loc("x.py":3:4)
    func.func @main(%a: tensor<f32> loc("a")) -> tensor<f32> {
      %0 = stablehlo.negate %a : tensor<f32> loc(#loc3)
      %1 = stablehlo.negate %0 : tensor<f32> loc(callsite("f"(#loc1) at "y.py":1:1))
      %2 = stablehlo.negate %1 : tensor<f32> loc(fused<"x">[unknown, #loc1, "g"])
      return %2 : tensor<f32> loc(unknown)
    } loc(#loc1)
    #loc3 = loc("jit(f)/neg"(#loc1))
    """
    (function,) = parse_mlir(text).regions[0].block.operations
    block = function.regions[0].block
    assert block.arguments[0].location == '"a"'
    locations = [operation.location for operation in block.operations]
    assert locations == ['"jit(f)/neg"("x.py":3:4)', '"f"("x.py":3:4)', '"g"("x.py":3:4)', ""]
    assert [(operation.line, operation.column) for operation in block.operations[:2]] == [(4, 7), (5, 7)]


def test_aliases_of_types_and_attributes() -> None:
    text = """
    !t = tensor<2xf32>
    #zero = dense<0.0> : !t
    func.func @main() -> !t {
      %0 = "stablehlo.constant"() <{value = #zero}> : () -> !t
      return %0 : !t
    }"""
    (function,) = parse_mlir(text).regions[0].block.operations
    assert function.regions[0].block.operations[0].results[0].type == TensorType((2,), F32)


def test_results_have_names_and_indices() -> None:
    text = """func.func @main(%a: tensor<f32>) -> tensor<f32> {
      %0:2 = "x.y"(%a) : (tensor<f32>) -> (tensor<f32>, tensor<i32>)
      %p, %q = "x.y"(%0#0) : (tensor<f32>) -> (tensor<f32>, tensor<f32>)
      %r = "x.z"(%0, %0#1, %q) : (tensor<f32>, tensor<i32>, tensor<f32>) -> tensor<f32>
      return %r : tensor<f32>
    }"""
    (function,) = parse_mlir(text).regions[0].block.operations
    first, second, third, _ = function.regions[0].block.operations
    assert third.operands == [first.results[0], first.results[1], second.results[1]]


ERRORS = [
    ("%0 = stablehlo.negate %b : tensor<f32>", "2:23: there is no value %b before this"),
    ("%0 = stablehlo.negat %a : tensor<f32>", "2:6: there is no operation 'stablehlo.negat' .*close are .*negate"),
    ("%0 = stablehlo.negate %a : tensor<2xf32>", r"2:22: %a is a tensor<f32>, here tensor<2xf32>"),
    ("%a = stablehlo.negate %a : tensor<f32>", "2:1: the value %a is defined twice"),
    ("%0 = stablehlo.negate %a tensor<f32>", "2:26: expected ':' in stablehlo.negate"),
    ("%0:2 = stablehlo.negate %a : tensor<f32>", "2:1: stablehlo.negate has 1 result, got 2 names"),
    ("%0 = stablehlo.constant dense<[1, 2]> : tensor<3xi32>", "2:30: the nesting of the values is not that of"),
    ("%0 = stablehlo.constant dense<[1, x]> : tensor<2xi32>", "2:30: 'x' is no value of s32"),
    ("%0 = stablehlo.constant dense<[1.0, inf]> : tensor<2xf32>", "2:30: 'inf' is no value of f32"),
    ("%0 = stablehlo.constant dense<300> : tensor<ui8>", "2:30: 300 does not fit u8"),
    ('%0 = stablehlo.constant dense<"0x0"> : tensor<ui8>', "2:30: the string of a constant is hexadecimal"),
    ("%0 = stablehlo.constant dense<1> : tensor<?xi32>", "2:30: a constant has a static type"),
    ("%0 = stablehlo.constant dense<__elided__> : tensor<9xi32>", "2:30: .*left out of the text"),
    ("%0 = stablehlo.transpose %a, dims = [0 : (", "2:40: expected ',' or ']'"),
    ("%0 = stablehlo.transpose %a, dim = [0]", "2:30: expected 'dims' in stablehlo.transpose, got 'dim "),
    ("%0 = stablehlo.convert %a : (tensor<f32>) -> vector<2xf32>", "2:46: there is no type 'vector' here"),
    ('%0 = "x.y"(%a) {a = array<i64: 1,1e9991>}', "2:34: an array of i64 holds integers, got inf"),
    ('%0 = "x.y"(%a) {a = array<f8E9M9: 0x7F>}', "2:35: there is no HLO element type for f8E9M9"),
    ('"cf.br"()[^bb1] : () -> ()', "2:10: cf.br jumps to blocks"),
    ('%0 = "x.y"(%a) {a = 1, a = 2} : (tensor<f32>) -> tensor<f32>', "2:24: the attribute a is given twice"),
    ('%0 = "x.y"(%a) {a = #b} : (tensor<f32>) -> tensor<f32>', "2:21: the attribute alias #b is not defined"),
    ('%0 = "x.y"(%a) {a = "b} : (tensor<f32>) -> tensor<f32>', "2:21: expected"),
    ("%0 = stablehlo.negate %a : tensor<*xf32>", "2:36: a tensor needs a rank"),
    ("return %a : tensor<f32> loc(#l)", "2:29: the location alias is not defined"),
]


@pytest.mark.parametrize("line, message", ERRORS, ids=[line for line, _ in ERRORS])
def test_errors_point_at_the_text(line: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_mlir(f"func.func @main(%a: tensor<f32>) -> tensor<f32> {{\n{line}\n}}")
    caught.match(message)
    assert caught.value.line == 2
    assert str(caught.value).splitlines()[-1].strip() == "^"


def test_the_block_of_a_function_may_name_its_parameters() -> None:
    text = """func.func @main(tensor<f32>, tensor<2xf32>) -> tensor<2xf32> {
    ^bb0(%arg1: tensor<f32>, %arg0: tensor<2xf32>):
      return %arg0 : tensor<2xf32>
    }"""
    (function,) = parse_mlir(text).regions[0].block.operations
    block = function.regions[0].block
    assert block.operations[0].operands == [block.arguments[1]]
    declared = parse_mlir("func.func private @f(tensor<f32>, tensor<f32>) -> tensor<f32>")
    assert not declared.regions[0].block.operations[0].regions
    for old, new, message in (
        ("%arg0: tensor<2xf32>)", "%arg0: tensor<f32>)", "3:1[24]: "),
        (
            "^bb0(%arg1: tensor<f32>, %arg0: tensor<2xf32>):",
            "%arg0 = stablehlo.constant dense<0.> : tensor<2xf32>",
            "1:",
        ),
        ("(tensor<f32>, tensor", "(%a: tensor<f32>, %b: tensor", "2:5: a region has no label"),
        ("(tensor<f32>, tensor", "(%a: tensor<f32>, tensor", "2:5: a region has no label"),
    ):
        with pytest.raises(ParseError, match=message):
            parse_mlir(text.replace(old, new))


@pytest.mark.parametrize(
    "text",
    [
        "module attributes {a = " + "[" * 100_000,
        "func.func @main(%a: " + "tuple<" * 100_000,
        "func.func @main() { return loc(" + "callsite(" * 100_000,
        "func.func @main() {" + '"x.y"() ({' * 100_000,
        "#a = #b\n#b = #a\nmodule attributes {a = #a} {}",
        "#a = loc(#a)\nmodule {} loc(#a)",
    ],
    ids=["attributes", "types", "locations", "regions", "aliases", "location aliases"],
)
def test_depth_has_a_limit(text: str) -> None:
    with pytest.raises(ParseError, match=r"deep|defined by itself"):
        parse_mlir(text)


def test_an_alias_may_be_defined_twice() -> None:
    text = "#a = 1\nmodule {}\n#a = 2\n"
    assert parse_mlir(text).name == "builtin.module"
