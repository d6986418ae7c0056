"""Import of StableHLO: ops in custom and generic form, control flow, calls, annotations, errors."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import hloom as hl
from compare_graphs import difference
from hloom.bench.peer_process import XlaPeer
from hloom.errors import ParseError
from hloom.stablehlo.importer.module import parse_stablehlo
from test_growth import FOUR_TIMES, calls

F, S, P, C = "tensor<4x6xf32>", "tensor<4x6xi32>", "tensor<4x6xi1>", "tensor<4x6xcomplex<f32>>"


def program(body: str, arguments: str, result: str) -> str:
    return f"func.func @main({arguments}) -> ({result}) {{\n{body}\n}}"


def entry(text: str) -> list[str]:
    """The entry's lines without shapes: `add(Arg_0, Arg_1)`."""
    lines = parse_stablehlo(text).to_text(layouts=False, metadata=False).partition("ENTRY")[2].split("\n")[1:-2]
    return [re.sub(r"^\s*(?:ROOT )?[\w.\-]+ = (\(.*?\)|\S+) (?=[a-z])", "", line) for line in lines if "=" in line]


UNARY = "abs cbrt ceil cosine exponential exponential_minus_one floor log log_plus_one logistic negate rsqrt sign sine "
UNARY += "sqrt tan tanh round_nearest_afz round_nearest_even"
BINARY = "add subtract multiply divide remainder power maximum minimum atan2"
BITS = "and or xor shift_left shift_right_arithmetic shift_right_logical"

ELEMENTWISE = [
    *((f"stablehlo.{name}", "%a", f"({F}) -> {F}", F) for name in UNARY.split()),
    *((f"stablehlo.{name}", "%a, %b", f"({F}, {F}) -> {F}", F) for name in BINARY.split()),
    *((f"stablehlo.{name}", "%i, %i", f"({S}, {S}) -> {S}", S) for name in BITS.split()),
    *((f"stablehlo.{name}", "%i", f"({S}) -> {S}", S) for name in ("not", "popcnt", "count_leading_zeros")),
    *((f"chlo.{name}", "%a", f"({F}) -> {F}", f"{F} -> {F}") for name in ("acos", "asinh", "erf", "sinh", "cosh")),
]


@pytest.mark.parametrize("name, operands, types, short", ELEMENTWISE, ids=[row[0] for row in ELEMENTWISE])
def test_elementwise_ops_in_both_forms(name: str, operands: str, types: str, short: str) -> None:
    arguments, result = f"%a: {F}, %b: {F}, %i: {S}", types.rpartition("-> ")[2]
    last = f"\nreturn %0 : {result}"
    own = parse_stablehlo(program(f"%0 = {name} {operands} : {short}{last}", arguments, result))
    generic = parse_stablehlo(program(f'%0 = "{name}"({operands}) : {types}{last}', arguments, result))
    assert difference(own, generic) is None
    assert own.entry.root.opcode == name.partition(".")[2].replace("_", "-")


# Custom form, generic form, the HLO of both.
GATHER = "dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], "
GATHER += "index_vector_dim = 1>"
FORMS: list[tuple[str, str, str]] = [
    (
        f"stablehlo.compare LT, %a, %b, TOTALORDER : ({F}, {F}) -> {P}",
        '"stablehlo.compare"(%a, %b) <{comparison_direction = #stablehlo<comparison_direction LT>, '
        f"compare_type = #stablehlo<comparison_type TOTALORDER>}}> : ({F}, {F}) -> {P}",
        "compare(a, b), direction=LT, type=TOTALORDER",
    ),
    (
        f"stablehlo.select %p, %a, %b : {P}, {F}",
        f'"stablehlo.select"(%p, %a, %b) : ({P}, {F}, {F}) -> {F}',
        "select(p, a, b)",
    ),
    (
        f"stablehlo.clamp %a, %b, %a : {F}",
        f'"stablehlo.clamp"(%a, %b, %a) : ({F}, {F}, {F}) -> {F}',
        "clamp(a, b, a)",
    ),
    (
        f"stablehlo.complex %a, %b : {C}",
        f'"stablehlo.complex"(%a, %b) : ({F}, {F}) -> {C}',
        "complex(a, b)",
    ),
    (
        f"stablehlo.convert %a : ({F}) -> {S}",
        f'"stablehlo.convert"(%a) : ({F}) -> {S}',
        "convert(a)",
    ),
    (
        f"stablehlo.bitcast_convert %a : ({F}) -> {S}",
        f'"stablehlo.bitcast_convert"(%a) : ({F}) -> {S}',
        "bitcast-convert(a)",
    ),
    (
        f"stablehlo.reduce_precision %a, format = e5m10 : {F}",
        '"stablehlo.reduce_precision"(%a) <{exponent_bits = 5 : i32, mantissa_bits = 10 : i32}> : '
        f"({F}) -> {F}",
        "reduce-precision(a), exponent_bits=5, mantissa_bits=10",
    ),
    (
        f"stablehlo.reshape %a : ({F}) -> tensor<24xf32>",
        f'"stablehlo.reshape"(%a) : ({F}) -> tensor<24xf32>',
        "reshape(a)",
    ),
    (
        f"stablehlo.broadcast_in_dim %a, dims = [1, 2] : ({F}) -> tensor<3x4x6xf32>",
        f'"stablehlo.broadcast_in_dim"(%a) <{{broadcast_dimensions = array<i64: 1, 2>}}> : ({F}) -> tensor<3x4x6xf32>',
        "broadcast(a), dimensions={1,2}",
    ),
    (
        f"stablehlo.transpose %a, dims = [1, 0] : ({F}) -> tensor<6x4xf32>",
        '"stablehlo.transpose"(%a) <{permutation = dense<[1, 0]> : tensor<2xi64>}> : '
        f"({F}) -> tensor<6x4xf32>",
        "transpose(a), dimensions={1,0}",
    ),
    (
        f"stablehlo.reverse %a, dims = [1] : {F}",
        f'"stablehlo.reverse"(%a) <{{dimensions = array<i64: 1>}}> : ({F}) -> {F}',
        "reverse(a), dimensions={1}",
    ),
    (
        f"stablehlo.slice %a [0:4:2, 1:3] : ({F}) -> tensor<2x2xf32>",
        '"stablehlo.slice"(%a) <{start_indices = array<i64: 0, 1>, limit_indices = array<i64: 4, 3>, '
        f"strides = array<i64: 2, 1>}}> : ({F}) -> tensor<2x2xf32>",
        "slice(a), slice={[0:4:2], [1:3]}",
    ),
    (
        f"stablehlo.dynamic_slice %a, %s, %s, sizes = [2, 3] : ({F}, tensor<i32>, tensor<i32>) -> tensor<2x3xf32>",
        '"stablehlo.dynamic_slice"(%a, %s, %s) <{slice_sizes = array<i64: 2, 3>}> : '
        f"({F}, tensor<i32>, tensor<i32>) -> tensor<2x3xf32>",
        "dynamic-slice(a, s, s), dynamic_slice_sizes={2,3}",
    ),
    (
        f"stablehlo.dynamic_update_slice %a, %b, %s, %s : ({F}, {F}, tensor<i32>, tensor<i32>) -> {F}",
        f'"stablehlo.dynamic_update_slice"(%a, %b, %s, %s) : ({F}, {F}, tensor<i32>, tensor<i32>) -> {F}',
        "dynamic-update-slice(a, b, s, s)",
    ),
    (
        f"stablehlo.pad %a, %x, low = [1, -1], high = [0, 2], interior = [1, 0] : ({F}, tensor<f32>) -> tensor<8x7xf32>",
        '"stablehlo.pad"(%a, %x) <{edge_padding_low = array<i64: 1, -1>, edge_padding_high = array<i64: 0, 2>, '
        f"interior_padding = array<i64: 1, 0>}}> : ({F}, tensor<f32>) -> tensor<8x7xf32>",
        "pad(a, x), padding=1_0_1x-1_2_0",
    ),
    (
        f"stablehlo.concatenate %a, %b, dim = 1 : ({F}, {F}) -> tensor<4x12xf32>",
        f'"stablehlo.concatenate"(%a, %b) <{{dimension = 1 : i64}}> : ({F}, {F}) -> tensor<4x12xf32>',
        "concatenate(a, b), dimensions={1}",
    ),
    (
        f"stablehlo.iota dim = 1 : {S}",
        f'"stablehlo.iota"() <{{iota_dimension = 1 : i64}}> : () -> {S}',
        "iota(), iota_dimension=1",
    ),
    (
        f"stablehlo.get_dimension_size %a, dim = 1 : ({F}) -> tensor<i32>",
        f'"stablehlo.get_dimension_size"(%a) <{{dimension = 1 : i64}}> : ({F}) -> tensor<i32>',
        "get-dimension-size(a), dimensions={1}",
    ),
    (
        f"stablehlo.set_dimension_size %a, %s, dim = 1 : ({F}, tensor<i32>) "
        "-> tensor<4x?xf32, #stablehlo.bounds<?, 6>>",
        f'"stablehlo.set_dimension_size"(%a, %s) <{{dimension = 1 : i64}}> : ({F}, tensor<i32>) '
        "-> tensor<4x?xf32, #stablehlo.bounds<?, 6>>",
        "set-dimension-size(a, s), dimensions={1}",
    ),
    (
        f"stablehlo.dot_general %a, %b, contracting_dims = [1] x [1], precision = [HIGHEST, DEFAULT], algorithm = "
        "<lhs_precision_type = tf32, rhs_precision_type = tf32, accumulation_type = f32, lhs_component_count = 1, "
        "rhs_component_count = 1, num_primitive_operations = 1, allow_imprecise_accumulation = false> "
        f": ({F}, {F}) -> tensor<4x4xf32>",
        '"stablehlo.dot_general"(%a, %b) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], '
        "rhs_contracting_dimensions = [1]>, precision_config = [#stablehlo<precision HIGHEST>, "
        "#stablehlo<precision DEFAULT>], algorithm = #stablehlo.dot_algorithm<lhs_precision_type = tf32, "
        "rhs_precision_type = tf32, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, "
        f"num_primitive_operations = 1, allow_imprecise_accumulation = false>}}> : ({F}, {F}) -> tensor<4x4xf32>",
        "dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={1}, operand_precision={highest,default}, "
        "algorithm=dot_tf32_tf32_f32",
    ),
    (
        "stablehlo.convolution(%v, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, f, 0], window = {stride = [2], "
        "pad = [[1, 1]], rhs_dilate = [2], reverse = [true]} {batch_group_count = 1 : i64, "
        "feature_group_count = 1 : i64} : (tensor<1x8x2xf32>, tensor<3x2x5xf32>) -> tensor<1x5x3xf32>",
        '"stablehlo.convolution"(%v, %w) <{dimension_numbers = #stablehlo.conv<[b, 0, f]x[0, i, o]->[b, f, 0]>, '
        "window_strides = array<i64: 2>, padding = dense<1> : tensor<1x2xi64>, rhs_dilation = array<i64: 2>, "
        "window_reversal = array<i1: true>, batch_group_count = 1 : i64, feature_group_count = 1 : i64}> : "
        "(tensor<1x8x2xf32>, tensor<3x2x5xf32>) -> tensor<1x5x3xf32>",
        "convolution(v, w), window={size=3 stride=2 pad=1_1 rhs_dilate=2 rhs_reversal=1}, dim_labels=b0f_0io->bf0",
    ),
    (
        "stablehlo.fft %a, type = RFFT, length = [6] : (tensor<4x6xf32>) -> tensor<4x4xcomplex<f32>>",
        '"stablehlo.fft"(%a) <{fft_type = #stablehlo<fft_type RFFT>, fft_length = array<i64: 6>}> : '
        "(tensor<4x6xf32>) -> tensor<4x4xcomplex<f32>>",
        "fft(a), fft_type=RFFT, fft_length={6}",
    ),
    (
        "stablehlo.cholesky %q, lower = true : tensor<4x4xf32>",
        '"stablehlo.cholesky"(%q) <{lower = true}> : (tensor<4x4xf32>) -> tensor<4x4xf32>',
        "cholesky(q), lower=true",
    ),
    (
        "stablehlo.reduce(%a init: %x) applies stablehlo.add across dimensions = [1] : "
        f"({F}, tensor<f32>) -> tensor<4xf32>",
        '"stablehlo.reduce"(%a, %x) <{dimensions = array<i64: 1>}> ({\n^bb0(%l: tensor<f32>, %r: tensor<f32>):\n'
        "%z = stablehlo.add %l, %r : tensor<f32>\nstablehlo.return %z : tensor<f32>\n"
        f"}}) : ({F}, tensor<f32>) -> tensor<4xf32>",
        "reduce(a, x), dimensions={1}, to_apply=computation",
    ),
    (
        "stablehlo.optimization_barrier %a : tensor<4x6xf32>",
        '"stablehlo.optimization_barrier"(%a) : (tensor<4x6xf32>) -> tensor<4x6xf32>',
        "opt-barrier(a)",
    ),
    (
        "stablehlo.partition_id : tensor<ui32>",
        '"stablehlo.partition_id"() : () -> tensor<ui32>',
        "partition-id()",
    ),
    (
        "stablehlo.einsum %a, %b, config = \"ij,kj->ki\" : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x4xf32>",
        '"stablehlo.einsum"(%a, %b) <{einsum_config = "ij,kj->ki"}> : '
        "(tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x4xf32>",
        "dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    ),
    (
        "stablehlo.custom_call @f(%a) {backend_config = \"c\", has_side_effect = true} : (tensor<4x6xf32>) -> tensor<f32>",
        '"stablehlo.custom_call"(%a) <{call_target_name = "f", backend_config = "c", has_side_effect = true}> : '
        "(tensor<4x6xf32>) -> tensor<f32>",
        'custom-call(a), custom_call_target="f", custom_call_has_side_effect=true, backend_config="c"',
    ),
    (
        "stablehlo.rng %x, %x, %n, distribution = UNIFORM : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<9xf32>",
        '"stablehlo.rng"(%x, %x, %n) <{rng_distribution = #stablehlo<rng_distribution UNIFORM>}> : '
        "(tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<9xf32>",
        "rng(x, x), distribution=rng_uniform",
    ),
]  # fmt: skip
ARGUMENTS = ", ".join(
    f'%{name}: {mlir} loc("{name}")'
    for name, mlir in {
        "a": F, "b": F, "i": S, "p": P, "s": "tensor<i32>", "x": "tensor<f32>", "v": "tensor<1x8x2xf32>",
        "w": "tensor<3x2x5xf32>", "q": "tensor<4x4xf32>", "n": "tensor<1xi64>",
    }.items()
)  # fmt: skip


@pytest.mark.parametrize("own, generic, hlo", FORMS, ids=[own.split()[0] for own, _, _ in FORMS])
def test_ops_in_custom_and_generic_form(own: str, generic: str, hlo: str, peer: XlaPeer) -> None:
    result = generic.rpartition("-> ")[2]
    texts = [program(f"%0 = {form}\nreturn %0 : {result}", ARGUMENTS, result) for form in (own, generic)]
    modules = [parse_stablehlo(text) for text in texts]
    assert difference(*modules) is None
    assert hlo in entry(texts[0])
    assert peer.parse(modules[0].to_text()).startswith("HloModule")


GENERIC = [
    (
        f'"stablehlo.gather"(%a, %j) <{{{GATHER}, slice_sizes = array<i64: 1, 6>}}> : ({F}, tensor<3x1xi32>) '
        "-> tensor<3x6xf32>",
        "gather(a, j), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, "
        "slice_sizes={1,6}",
    ),
    (
        '"stablehlo.all_gather"(%a) <{all_gather_dim = 1 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, '
        "channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>, use_global_device_ids}> : "
        f"({F}) -> tensor<4x12xf32>",
        "all-gather(a), channel_id=3, replica_groups={{0,1}}, dimensions={1}, use_global_device_ids=true",
    ),
    (
        '"stablehlo.collective_permute"(%a) <{source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>}> : '
        f"({F}) -> {F}",
        "collective-permute(a), source_target_pairs={{0,1}}",
    ),
    (
        '"stablehlo.triangular_solve"(%q, %q) <{left_side = true, lower = true, unit_diagonal = false, '
        "transpose_a = #stablehlo<transpose ADJOINT>}> : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>",
        "triangular-solve(q, q), left_side=true, lower=true, transpose_a=ADJOINT",
    ),
]


@pytest.mark.parametrize("op, hlo", GENERIC, ids=[op.split('"')[1] for op, _ in GENERIC])
def test_ops_with_generic_form_only(op: str, hlo: str) -> None:
    result = op.rpartition("-> ")[2]
    arguments = f'{ARGUMENTS}, %j: tensor<3x1xi32> loc("j")'
    assert hlo in entry(program(f"%0 = {op}\nreturn %0 : {result}", arguments, result))


def run(text: str, *arrays: Any, backend: str = "interpreter") -> Any:
    return hl.compile(parse_stablehlo(text), backend=backend)(*arrays)


def test_regions_capture_outer_values() -> None:
    text = """func.func @main(%n: tensor<i32>, %x: tensor<f32>, %p: tensor<i1>) -> (tensor<f32>, tensor<f32>) {
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %r:2 = stablehlo.while(%i = %n, %acc = %x) : tensor<i32>, tensor<f32>
        cond {
          %c = stablehlo.compare GT, %i, %zero : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %c : tensor<i1>
        } do {
          %j = stablehlo.subtract %i, %one : tensor<i32>
          %b = "stablehlo.if"(%p) ({
            %s = stablehlo.add %acc, %x : tensor<f32>
            stablehlo.return %s : tensor<f32>
          }, {
            stablehlo.return %acc : tensor<f32>
          }) : (tensor<i1>) -> tensor<f32>
          stablehlo.return %j, %b : tensor<i32>, tensor<f32>
        }
      %k = "stablehlo.case"(%r#0) ({
        stablehlo.return %r#1 : tensor<f32>
      }, {
        stablehlo.return %x : tensor<f32>
      }) : (tensor<i32>) -> tensor<f32>
      return %r#1, %k : tensor<f32>, tensor<f32>
    }"""
    for backend in ("interpreter", "cpu"):
        results = run(text, np.int32(5), np.float32(1.5), np.bool_(True), backend=backend)
        assert [float(x) for x in results] == [9.0, 9.0]


def test_a_reducer_may_use_constants_from_outside_and_nothing_else() -> None:
    body = """%two = stablehlo.constant dense<2.0> : tensor<f32>
    %0 = stablehlo.reduce(%a init: %x) across dimensions = [0] : (tensor<3xf32>, tensor<f32>) -> tensor<f32>
     reducer(%l: tensor<f32>, %r: tensor<f32>) {
      %d = stablehlo.multiply %r, %OUTSIDE : tensor<f32>
      %s = stablehlo.add %l, %d : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }
    return %0 : tensor<f32>"""
    arguments = "%a: tensor<3xf32>, %x: tensor<f32>"
    text = program(body.replace("OUTSIDE", "two"), arguments, "tensor<f32>")
    assert parse_stablehlo(text).computations[0].result_shape == hl.f32[()]
    with pytest.raises(ParseError, match=r"5:7: stablehlo.multiply: uses %x from outside its region"):
        parse_stablehlo(program(body.replace("OUTSIDE", "x"), arguments, "tensor<f32>"))


def test_calls_composites_and_tuples() -> None:
    text = """
    func.func private @twice(%x: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
      %y = stablehlo.add %x, %x : tensor<f32>
      return %x, %y : tensor<f32>, tensor<f32>
    }
    func.func private @half(%x: tensor<f32>) -> tensor<f32> {
      %h = stablehlo.constant dense<0.5> : tensor<f32>
      %y = stablehlo.multiply %x, %h : tensor<f32>
      return %y : tensor<f32>
    }
    func.func public @main(%x: tensor<f32>) -> tensor<f32> {
      %r:2 = call @twice(%x) : (tensor<f32>) -> (tensor<f32>, tensor<f32>)
      %t = stablehlo.tuple %r#0, %r#1 : tuple<tensor<f32>, tensor<f32>>
      %g = stablehlo.get_tuple_element %t[1] : (tuple<tensor<f32>, tensor<f32>>) -> tensor<f32>
      %c = stablehlo.composite "my.half" %g {composite_attributes = {n = 1 : i64}, decomposition = @half} :
        (tensor<f32>) -> tensor<f32>
      return %c : tensor<f32>
    }"""
    assert float(run(text, np.float32(3))) == 3.0
    call = parse_stablehlo(text).entry.root
    assert call.op.is_composite and call.frontend_attributes["composite.name"] == "my.half"  # type: ignore[attr-defined]


def test_annotations_of_the_module_and_of_arguments() -> None:
    text = """module @jit_f attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
      sdy.mesh @mesh = <["x"=2, "y"=4]>
      func.func public @main(
          %a: tensor<8x8xf32> {tf.aliasing_output = 1 : i32, mhlo.sharding = "{replicated}"},
          %b: tensor<8x8xf32> {jax.buffer_donor = true, sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {"x"}]>})
          -> (tensor<8x8xf32> {jax.result_info = "[0]"}, tensor<8x8xf32> {mhlo.sharding = "{manual}"}) {
        %0 = stablehlo.add %a, %b {mhlo.frontend_attributes = {k = "v"}} : tensor<8x8xf32> loc("f/add"("x.py":3:4))
        %1 = sdy.sharding_constraint %0 <@mesh, [{}, {"x", "y"}]> : tensor<8x8xf32>
        return %0, %1 : tensor<8x8xf32>, tensor<8x8xf32>
      }
    }"""
    lines = parse_stablehlo(text).to_text(layouts=False).split("\n")
    assert "input_output_alias={ {1}: (0, {}, may-alias) }" in lines[0] and "buffer_donor={ (1, {}) }" in lines[0]
    assert "num_partitions=2" in lines[0]
    rest = "\n".join(lines[1:])
    assert "parameter(0), sharding={replicated}" in rest
    assert "parameter(1), sharding={devices=[4,2]<=[2,4]T(1,0)}" in rest
    assert 'frontend_attributes={k="v"}, metadata={op_name="f/add" source_file="x.py" source_line=3}' in rest
    assert 'custom_call_target="Sharding", sharding={devices=[1,8]<=[8]}' in rest
    assert "sharding={{replicated}, {manual}}" in rest


def test_manual_computations_are_calls_between_changes_of_shape() -> None:
    text = """module @m attributes {mhlo.num_partitions = 2 : i32} {
      sdy.mesh @mesh = <["x"=2]> {stablehlo.mesh = {axes = [{name = "x", size = 2 : i64}]}}
      func.func public @main(%a: tensor<4x6xf32>) -> tensor<4x6xf32> {
        %0 = sdy.manual_computation(%a) in_shardings=[<@mesh, [{"x"}, {}]>] out_shardings=[<@mesh, [{"x"}, {}]>]
          manual_axes={"x"} (%b: tensor<2x6xf32>) {
          %1 = stablehlo.add %b, %b : tensor<2x6xf32>
          sdy.return %1 : tensor<2x6xf32>
        } : (tensor<4x6xf32>) -> tensor<4x6xf32>
        return %0 : tensor<4x6xf32>
      }
    }"""
    to_local, call, to_global = parse_stablehlo(text).entry.instructions[1:]
    assert (to_local.shape, call.shape, to_global.shape) == (hl.f32[2, 6], hl.f32[2, 6], hl.f32[4, 6])
    assert to_local.op.target_name == "xla.sdy.GlobalToLocalShape"  # type: ignore[attr-defined]
    assert to_local.frontend_attributes == {
        "xla.sdy.in_shardings": '#sdy.sharding_per_value<[<@mesh, [{"x"}, {}]>]>',
        "xla.sdy.manual_axes": '#sdy<manual_axes{"x"}>',
    }


def test_sizes_that_operands_give_are_refined() -> None:
    text = """
    func.func private @rows(%x: tensor<?x3xf32>) -> tensor<?xi32> {
      %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x3xf32>) -> tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %m = stablehlo.add %n, %one : tensor<i32>
      %s = stablehlo.reshape %m : (tensor<i32>) -> tensor<1xi32>
      %i = stablehlo.dynamic_iota %s, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
      return %i : tensor<?xi32>
    }
    func.func @main(%a: tensor<4x3xf32>) -> tensor<?xi32> {
      %0 = stablehlo.convert %a : (tensor<4x3xf32>) -> tensor<?x3xf32>
      %1 = call @rows(%0) : (tensor<?x3xf32>) -> tensor<?xi32>
      return %1 : tensor<?xi32>
    }"""
    assert run(text, np.zeros((4, 3), np.float32)).tolist() == [0, 1, 2, 3, 4]


def test_quantised_arithmetic_is_done_on_dequantised_values() -> None:
    q = "tensor<2x!quant.uniform<i8:f32, 0.5:-20>>"
    text = program(
        f"""%0 = stablehlo.uniform_quantize %a : (tensor<2xf32>) -> {q}
        %1 = stablehlo.add %0, %0 : {q}
        %2 = stablehlo.uniform_dequantize %1 : ({q}) -> tensor<2xf32>
        %3 = stablehlo.bitcast_convert %1 : ({q}) -> tensor<2xi8>
        return %2, %3 : tensor<2xf32>, tensor<2xi8>""",
        "%a: tensor<2xf32>",
        "tensor<2xf32>, tensor<2xi8>",
    )
    dequantised, stored = run(text, np.array([1.3, 100.0], np.float32))
    assert dequantised.tolist() == [3.0, 73.5] and stored.tolist() == [-14, 127]


ERRORS = [
    ("%0 = stablehlo.add %a, %a : tensor<2xf32>\nreturn %0 : tensor<2xf32>", "tensor<2xf32>", ""),
    ('%0 = "x.y"(%a) : (tensor<2xf32>) -> tensor<2xf32>', "tensor<2xf32>", "2:1: x.y: there is no HLO for this"),
    (
        "%0 = stablehlo.transpose %a, dims = [1] : (tensor<2xf32>) -> tensor<2xf32>",
        "tensor<2xf32>",
        r"2:1: stablehlo.transpose: transpose\[TRANSPOSE-2\]",
    ),
    (
        "%0 = stablehlo.reshape %a : (tensor<2xf32>) -> tensor<3xf32>",
        "tensor<3xf32>",
        r"2:1: stablehlo.reshape: reshape\[RESHAPE-2\]",
    ),
    (
        '%0 = "stablehlo.transpose"(%a) : (tensor<2xf32>) -> tensor<2xf32>',
        "tensor<2xf32>",
        "2:1: stablehlo.transpose: the attribute permutation is missing",
    ),
    (
        "%0 = stablehlo.dynamic_reshape %a, %s : (tensor<2xf32>, tensor<1xi32>) -> tensor<?xf32>",
        "tensor<?xf32>",
        "2:1: stablehlo.dynamic_reshape: the result's sizes depend on values at run time",
    ),
    (
        '%0 = "stablehlo.convert"(%a, %a) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>',
        "tensor<2xf32>",
        "2:1: stablehlo.convert: does not have 2 operands, 1 results",
    ),
    ("%0 = call @g(%a) : (tensor<2xf32>) -> tensor<2xf32>", "tensor<2xf32>", "2:1: func.call: there is no function @g"),
    (
        "%0 = call @main(%a, %s) : (tensor<2xf32>, tensor<1xi32>) -> tensor<2xf32>",
        "tensor<2xf32>",
        "1:1: func.func: the function @main calls itself",
    ),
    (
        "%0 = stablehlo.compare XX, %a, %a : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xi1>",
        "tensor<2xi1>",
        "2:1: stablehlo.compare: there is no comparison_direction 'XX'; there is: EQ, NE",
    ),
    (
        "return %a : tensor<2xf32>",
        "tensor<3xf32>",
        r"1:1: func.func: the function is declared to return \(tensor<3xf32>\), but returns \(tensor<2xf32>\)",
    ),
    (
        '%0 = "stablehlo.while"(%a) ({\n^bb0(%x: tensor<3xf32>):\n%t = stablehlo.constant dense<true> : tensor<i1>\n'
        "stablehlo.return %t : tensor<i1>\n}, {\n^bb0(%x: tensor<2xf32>):\nstablehlo.return %x : tensor<2xf32>\n}) : "
        "(tensor<2xf32>) -> tensor<2xf32>\nreturn %0 : tensor<2xf32>",
        "tensor<2xf32>",
        r"2:1: stablehlo.while: %x is declared as tensor<3xf32>, but is f32\[2\]",
    ),
    ("return %a, %a : tensor<2xf32>, tensor<2xf32>", "tensor<2xf32>", r"but returns \(tensor<2xf32>, tensor<2xf32>\)"),
]


@pytest.mark.parametrize("body, result, message", ERRORS, ids=[message or "none" for _, _, message in ERRORS])
def test_errors_name_the_op_and_its_position(body: str, result: str, message: str) -> None:
    ending = "" if "return" in body else f"\nreturn %0 : {result}"
    text = program(body + ending, "%a: tensor<2xf32>, %s: tensor<1xi32>", result)
    if not message:
        parse_stablehlo(text)
        return
    with pytest.raises(ParseError, match=message):
        parse_stablehlo(text)


def test_a_main_function_is_needed() -> None:
    with pytest.raises(ParseError, match="there is no function @main, and not one public function; there is: @a, @b"):
        parse_stablehlo("func.func @a() { return } func.func @b() { return }")


def test_long_programs_are_read_in_linear_time() -> None:
    def work(count: int) -> int:
        lines = "\n".join(f"%{i + 1} = stablehlo.negate %{i} : tensor<f32>" for i in range(count))
        text = program(f"{lines}\nreturn %{count} : tensor<f32>", "%0: tensor<f32>", "tensor<f32>")
        return calls(lambda: parse_stablehlo(text))

    assert work(1600) < FOUR_TIMES * work(400)
