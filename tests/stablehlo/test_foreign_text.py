"""StableHLO as other tools write it: text that XLA accepts is imported, gives XLA's results, and is exported for
XLA.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import hloom as hl
from hloom.bench.peer_process import XlaPeer
from hloom.files.arrays import difference, random_value
from hloom.proto import module_from_bytes, module_to_bytes
from hloom.stablehlo.exporter.module import print_stablehlo
from hloom.stablehlo.mlir.bytecode import bytecode_of, text_of
from hloom.text.sharding import sharding_text

F, S = "tensor<4xf32>", "tensor<4xi32>"
MANUAL = 'in_shardings=[<@m, [{}]>] out_shardings=[<@m, [{"x"}]>] manual_axes={"x"} '


def main(body: str, arguments: str = f"%a: {F}", result: str = F, before: str = "") -> str:
    return f"{before}func.func @main({arguments}) -> ({result}) {{\n{body}\nreturn %0 : {result}\n}}\n"


def convolution(window: str) -> str:
    image, kernel = "tensor<1x6x6x2xf32>", "tensor<3x3x2x4xf32>"
    line = (
        f"%0 = stablehlo.convolution(%a, %b) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {window}"
    )
    line += " {batch_group_count = 1 : i64, feature_group_count = 1 : i64}"
    result = "tensor<1x6x6x4xf32>"
    return main(f"{line} : ({image}, {kernel}) -> {result}", f"%a: {image}, %b: {kernel}", result)


def contraction(dimension_numbers: str) -> str:
    left, right, result = "tensor<2x3xf32>", "tensor<3x4xf32>", "tensor<2x4xf32>"
    line = f'%0 = "stablehlo.dot_general"(%a, %b) {{dot_dimension_numbers = #stablehlo.dot<{dimension_numbers}>}}'
    return main(f"{line} : ({left}, {right}) -> {result}", f"%a: {left}, %b: {right}", result)


def gathered(dimension_numbers: str) -> str:
    operand, indices, result = "tensor<8x16xf32>", "tensor<4x1xi32>", "tensor<4x16xf32>"
    line = f'%0 = "stablehlo.gather"(%a, %b) {{dimension_numbers = #stablehlo.gather<{dimension_numbers}>, '
    line += f"slice_sizes = array<i64: 1, 16>}} : ({operand}, {indices}) -> {result}"
    return main(line, f"%a: {operand}, %b: {indices}", result)


LOOP = """%one = stablehlo.constant dense<1> : tensor<i32>
%ten = stablehlo.constant dense<10> : tensor<i32>
%l:2 = stablehlo.while(%i = %b, %x = %a) : tensor<i32>, tensor<4xf32> attributes {mhlo.sharding = "SHARDING"} cond {
  %c = stablehlo.compare LT, %i, %ten : (tensor<i32>, tensor<i32>) -> tensor<i1>
  stablehlo.return %c : tensor<i1>
} do {
  %n = stablehlo.add %i, %one : tensor<i32>
  %y = stablehlo.sine %x : tensor<4xf32>
  stablehlo.return %n, %y : tensor<i32>, tensor<4xf32>
}
%0 = stablehlo.negate %l#1 : tensor<4xf32>"""

NEGATED = f"%0 = stablehlo.negate %a : {F}"
TEXTS = {
    "a broadcast whose dimensions come in another order": main(
        "%0 = stablehlo.broadcast_in_dim %a, dims = [2, 0] : (tensor<2x3xf32>) -> tensor<3x4x2xf32>",
        "%a: tensor<2x3xf32>",
        "tensor<3x4x2xf32>",
    ),
    "such a broadcast that stretches": main(
        "%0 = stablehlo.broadcast_in_dim %a, dims = [3, 0, 1] : (tensor<2x1x3xf32>) -> tensor<5x3x4x2xf32>",
        "%a: tensor<2x1x3xf32>",
        "tensor<5x3x4x2xf32>",
    ),
    "a mesh before the functions": main(NEGATED, before='// a comment\nsdy.mesh @mesh = <["x"=1]>\n'),
    "a constant of Shardy": main(f"%c = sdy.constant dense<7> : {S}\n%0 = stablehlo.add %a, %c : {S}", f"%a: {S}", S),
    "constants of arith": main(
        f"%n = arith.constant 3 : index\n%t = arith.constant true\n%x = arith.constant 1.5 : f32\n"
        f"%c = arith.constant dense<[1.5, 2.0, 3.0, 4.0]> : {F}\n%0 = stablehlo.add %a, %c : {F}"
    ),
    "a trace": main(f'"mhlo.trace"(%a) {{tag = "here"}} : ({F}) -> ()\n{NEGATED}'),
    "a manual computation on one device": main(
        f"%0 = sdy.manual_computation(%a) {MANUAL} (%b: {F}) {{\n%1 = stablehlo.sine %b : {F}\nsdy.return %1 : {F}\n}}"
        f" : ({F}) -> {F}",
        before='sdy.mesh @other = <["x"=4]>\nsdy.mesh @m = <["x"=1, "y"=1]>\n',
    ),
    "a comment in a sharding": main(
        LOOP.replace("SHARDING", "{{replicated}, /*index=1*/{replicated}}"), f"%a: {F}, %b: tensor<i32>"
    ),
    # type: MAXIMAL, tile_assignment_dimensions: 1, tile_assignment_devices: 0
    "a sharding as the bytes of a proto": main(NEGATED.replace(" :", r' {mhlo.sharding = "\08\01\1A\01\01\22\01\00"} :')),
    "a comma after the last dimension numbers": contraction(
        "\nlhs_contracting_dimensions = [1],\nrhs_contracting_dimensions = [0],\n"
    ),
    "a comma after the last of a gather's": gathered(
        "offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1, "
    ),
    "a comma after the last part of a window": convolution("{\nstride = [1, 1],\npad = [[1, 1], [1, 1]],\n}"),
    "a module in a module": f"module {{\nmodule @m {{\n{main(NEGATED)}}}\n{main(NEGATED.replace('negate', 'sine'))}}}",
    "a comparison without a type": main(
        f'%c = "mhlo.compare"(%a, %a) {{comparison_direction = #mhlo<comparison_direction LT>, '
        f"compare_type = #mhlo<comparison_type NOTYPE>}} : ({F}, {F}) -> tensor<4xi1>\n"
        f"%0 = mhlo.select %c, %a, %a : tensor<4xi1>, {F}"
    ),
    "a comparison that broadcasts": main(
        f"%c = chlo.broadcast_compare %a, %b {{comparison_direction = #chlo<comparison_direction LT>}} : ({F}, tensor<f32>)"
        f" -> tensor<4xi1>\n%0 = stablehlo.select %c, %a, %a : tensor<4xi1>, {F}",
        f"%a: {F}, %b: tensor<f32>",
    ),
    "a copy and a dependency": main(
        f"%t = stablehlo.create_token : !stablehlo.token\n%c = mhlo.copy %a : {F}\n"
        f"%0 = mhlo.add_dependency %c, %t : ({F}, !stablehlo.token) -> {F}"
    ),
    "branches whose results have another sharding": main(
        f'%0 = "stablehlo.if"(%p) ({{\n%x = stablehlo.sine %a {{mhlo.sharding = "{{maximal device=0}}"}} : {F}\n'
        f"stablehlo.return %x : {F}\n}}, {{\nstablehlo.return %a : {F}\n}}) "
        f'{{mhlo.sharding = "{{replicated}}"}} : (tensor<i1>) -> {F}',
        f"%a: {F}, %p: tensor<i1>",
    ),
    "a reduction over replicas": main(
        f'%0 = "stablehlo.cross-replica-sum"(%a) {{replica_groups = dense<0> : tensor<1x1xi64>}} : ({F}) -> {F}'
    ),
    "a collective that starts and is done": main(
        f'%s = "stablehlo.async_start"(%a) ({{\n^bb0(%b: {F}):\n%r = "stablehlo.all_gather"(%b) '
        "{all_gather_dim = 0 : i64, replica_groups = dense<0> : tensor<1x1xi64>} "
        f": ({F}) -> {F}\nstablehlo.return %r : {F}\n}}) : ({F}) -> "
        f'!stablehlo.future<{F}>\n%0 = "stablehlo.async_done"(%s) : (!stablehlo.future<{F}>) -> {F}'
    ),
    "a scan": main(
        f"%z = mhlo.constant dense<0.0> : tensor<f32>\n"
        f"%0:2 = mhlo.scan(%a) inits (%z) dimension = 0 attributes {{is_reverse = false}} {{\n"
        f"^bb0(%x: tensor<f32>, %y: tensor<f32>):\n%s = mhlo.add %x, %y : tensor<f32>\n"
        f"mhlo.return %s, %s : tensor<f32>, tensor<f32>\n}} : ({F}, tensor<f32>) -> ({F}, tensor<f32>)",
    ),
    "the shape dialect's constants": main(
        f"%s = shape.const_shape [2, 2] : tensor<2xindex>\n"
        f"%0 = stablehlo.dynamic_reshape %a, %s : ({F}, tensor<2xindex>) -> tensor<2x2xf32>",
        result="tensor<2x2xf32>",
    ),
    "no parameter replication": main(NEGATED, f"%a: {F} {{mhlo.parameter_replication = []}}"),
    "names of types and words of HLO": main(
        f'%s = stablehlo.add %a, %b : {F} loc("f32")\n%0 = stablehlo.negate %s : {F} loc("ROOT")',
        f'%a: {F} loc("s1"), %b: {F} loc("nan"), %c: {F} loc("unknown"), %d: {F} loc("__x"), %e: {F} loc("s1_")',
    ),
    "the first version of custom calls": main(f"%0 = stablehlo.custom_call @Sharding(%a) {{api_version = 0 : i32}} : ({F}) -> {F}"),
}  # fmt: skip


def inputs(module: hl.Module) -> list[Any]:
    rng = np.random.default_rng(0)
    return [random_value(rng, parameter.shape) for parameter in module.entry.parameters]


@pytest.mark.sampled(10)
@pytest.mark.parametrize("name", TEXTS)
def test_xla_and_hloom_give_the_same_of_each_text(name: str, peer: XlaPeer) -> None:
    text = TEXTS[name]
    module = hl.parse(text)
    arrays = inputs(module)
    (expected,) = peer.run_stablehlo(text, arrays)
    for backend in ("interpreter", "cpu"):
        assert not difference(np.asarray(hl.compile(module, backend=backend)(*arrays)), expected, 1e-5, 1e-6)
    (of_hlo,), (of_stablehlo,) = peer.run(module.to_text(), arrays), peer.run_stablehlo(print_stablehlo(module), arrays)
    assert not difference(of_hlo, expected, 1e-6, 1e-6) and not difference(of_stablehlo, expected, 1e-6, 1e-6)
    for again in (module.to_text(), print_stablehlo(module)):
        assert not difference(np.asarray(hl.compile(hl.parse(again))(*arrays)), expected, 1e-5, 1e-6)


def test_a_function_that_starts_is_updated_and_is_done_is_called() -> None:
    """The form of MHLO, which XLA writes for HLO's async-start and copy-start."""
    bundle = f"!mhlo.async_bundle<tuple<{F}, {F}>, tuple<{F}, {F}>, tensor<i32>>"
    sharding = "{{replicated}, {replicated}, {replicated}, {replicated}, {replicated}}"
    function = (
        f'func.func private @f(%x: {F}, %y: {F}) -> ({F}, {F}) attributes {{execution_thread = "main"}} {{\n'
        f"%s = mhlo.subtract %x, %y : {F}\nreturn %s, %x : {F}, {F}\n}}\n"
    )
    body = (
        '%s = "mhlo.async_start"(%a, %b) {called_computation = @f, execution_thread = "main", '
        f'mhlo.sharding = "{sharding}", mhlo.frontend_attributes = {{k = "v"}}}} : ({F}, {F}) -> {bundle}\n'
        f'%u = "mhlo.async_update"(%s) : ({bundle}) -> {bundle}\n'
        f'%d:2 = "mhlo.async_done"(%u) : ({bundle}) -> ({F}, {F})\n%0 = mhlo.multiply %d#0, %d#1 : {F}'
    )
    text = function + main(body, f"%a: {F}, %b: {F}")
    (call,) = (i for i in hl.parse(text).instructions() if i.opcode == "call")
    assert call.frontend_attributes == {"k": "v"}
    x, y = np.arange(8, dtype=np.float32).reshape(2, 4) ** 2
    np.testing.assert_array_equal(hl.compile(text)(x, y), (x - y) * x)
    recursive = function.replace(
        "return", f'%t = "mhlo.async_start"(%x, %y) {{called_computation = @f}} : ({F}, {F}) -> {bundle}\nreturn'
    )
    with pytest.raises(hl.ParseError, match="the function @f calls itself"):
        hl.parse(recursive + main(body, f"%a: {F}, %b: {F}"))


ALL_REDUCE = f"""%0 = "stablehlo.all_reduce"(%a) <{{replica_groups = #stablehlo.replica_group_mesh_axes<GROUPS>,
  channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids}}> ({{
^bb0(%x: tensor<f32>, %y: tensor<f32>):
  %s = stablehlo.add %x, %y : tensor<f32>
  stablehlo.return %s : tensor<f32>
}}) : ({F}) -> {F}"""
MESHES = """sdy.mesh @m = <["x"=2, "y"=4]>
sdy.mesh @turned = <["x"=2, "y"=2], device_ids=[3, 2, 1, 0]>
sdy.mesh @one = <[], device_ids=[0]>
"""
GROUPS = [
    ('mesh = @m, axes = [#stablehlo.axis_ref<name = "x">]', [(0, 4), (1, 5), (2, 6), (3, 7)]),
    ('mesh = @m, axes = [#stablehlo.axis_ref<name = "y">, #stablehlo.axis_ref<name = "x">]', [(0, 4, 1, 5, 2, 6, 3, 7)]),
    ('mesh = @m, axes = [#stablehlo.axis_ref<name = "y", sub_axis_info = (2)2>]', [(0, 1), (2, 3), (4, 5), (6, 7)]),
    ("mesh = @m, axes = []", [(i,) for i in range(8)]),
    ("mesh = @one, axes = []", [(0,)]),
    ('mesh = @turned, axes = [#stablehlo.axis_ref<name = "y">]', [(3, 2), (1, 0)]),
    ('mesh = #stablehlo.mesh<axes=[<name = "x", size = 2>, <name = "y", size = 2>], device_ids=dense<[1, 0, 3, 2]> : '
     'tensor<4xi64>>, axes = [#stablehlo.axis_ref<name = "x">]', [(1, 3), (0, 2)]),
]  # fmt: skip


@pytest.mark.parametrize(("groups", "members"), GROUPS)
def test_groups_along_axes_of_a_mesh(groups: str, members: list[tuple[int, ...]], peer: XlaPeer) -> None:
    """COLL-7: groups run over the axes, the first slowest, one for each position along the other axes of the mesh."""
    text = main(ALL_REDUCE.replace("GROUPS", groups), before=MESHES)
    module = hl.parse(text)
    assert [*module.entry.root.op.replica_groups.groups] == members  # type: ignore[attr-defined]
    peer.from_stablehlo(text)
    peer.parse(module.to_text())
    peer.from_stablehlo(print_stablehlo(module))


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ("mesh = @n, axes = []", "there is no mesh @n; there is: m, turned, one"),
        ('mesh = @m, axes = [#stablehlo.axis_ref<name = "z">]', "the mesh has no axis 'z'; it has: x, y"),
        ('mesh = @m, axes = [#stablehlo.axis_ref<name = "y", sub_axis_info = (3)2>]', "do not divide"),
        ("mesh = @m, axes = [1]", "expected #stablehlo.axis_ref<..>"),
    ],
)
def test_invalid_groups_along_axes_are_errors(groups: str, message: str) -> None:
    with pytest.raises(hl.ParseError, match=message):
        hl.parse(main(ALL_REDUCE.replace("GROUPS", groups), before=MESHES))


SHARDINGS = [
    ('@m, [{"x"}, {?}]', "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"),
    ('@m, [{}, {"y", "x"}p1]', "{devices=[1,8]<=[2,4]T(1,0)}"),
    ('@m, [{}, {}]', "{replicated}"),
    ('@m, [{"y":(1)2}, {"y":(2)2, "x"}]', "{devices=[2,4]<=[2,4]T(1,0)}"),
    ('@m, [{"y":(2)2}, {}]', "{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}"),
    ('@m, [{"x"}, {}], unreduced={"y"}', "{devices=[2,1,4]<=[8] last_tile_dims={unreduced}}"),
    ('@m, [{}, {}], unreduced={"x"}', "{devices=[1,1,2,4]<=[8] last_tile_dims={unreduced, replicated}}"),
    ('@m, [{"x"}, {}], replicated={"y"}', "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"),
    ('@turned, [{"x"}, {"y"}]', "{devices=[2,2]3,2,1,0}"),
    ('mesh<["a"=2, "b"=2]>, [{"b"}, {}]', "{devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}"),
]  # fmt: skip


@pytest.mark.parametrize(("named", "tiles"), SHARDINGS)
def test_shardings_over_axes_are_tiles_of_devices(named: str, tiles: str, peer: XlaPeer) -> None:
    square = "tensor<8x8xf32>"
    text = main(
        f"%0 = stablehlo.negate %a : {square}", f"%a: {square} {{sdy.sharding = #sdy.sharding<{named}>}}", square
    )
    parameters = [
        next(line for line in shown.split("\n") if "parameter(0)" in line)
        for shown in (
            hl.parse(MESHES + text).to_text(),
            module_from_bytes(peer.from_stablehlo(MESHES + text)).to_text(),
        )
    ]
    for line in parameters:
        assert f"sharding={tiles}, frontend_attributes" in line
    written = print_stablehlo(hl.parse(MESHES + text))
    assert f"sharding={tiles}, frontend_attributes" in hl.parse(written).to_text()


def test_a_mesh_inlined_in_a_sharding_gets_a_name() -> None:
    text = MESHES + main(
        f'%b = stablehlo.negate %a {{sdy.sharding = #sdy.sharding_per_value<[<mesh<["y"=4]>, [{{"y"}}]>]>}} : {F}\n'
        f'%0 = stablehlo.sine %b {{sdy.sharding = #sdy.sharding_per_value<[<mesh<["x"=2, "y"=4]>, [{{"x"}}]>]>}} : {F}'
    )
    module = hl.parse(text)
    assert module.frontend_attributes["xla.sdy.meshes"].endswith('mesh = #sdy.mesh<["y"=4]>}')
    shardings = [i.frontend_attributes.get("xla.sdy.sharding") for i in module.entry.instructions[1:]]
    assert shardings == [f"#sdy.sharding_per_value<[<{sharding}>]>" for sharding in ('@mesh, [{"y"}]', '@m, [{"x"}]')]


def test_results_have_a_sharding_each() -> None:
    shardings = '#sdy.sharding_per_value<[<@m, [{"x"}]>, <@m, [{"y"}]>]>'
    text = f"%r:2 = stablehlo.custom_call @f(%a) {{sdy.sharding = {shardings}, sdy.sharding_rule = "
    text += (
        f"#sdy.op_sharding_rule<([i])->([i], [i]) {{i=4}}>}} : ({F}) -> ({F}, {F})\n%0 = stablehlo.add %r#0, %r#1 : {F}"
    )
    call = next(i for i in hl.parse(MESHES + main(text)).entry.instructions if i.opcode == "custom-call")
    one, two = "{devices=[2,4]<=[8] last_tile_dim_replicate}", "{devices=[4,2]<=[2,4]T(1,0) last_tile_dim_replicate}"
    assert sharding_text(call.sharding) == f"{{{one}, {two}}}"
    assert call.frontend_attributes["xla.sdy.sharding_rule"] == "#sdy.op_sharding_rule<([i])->([i], [i]) {i=4}>"


MARKERS = [
    f"sdy.sharding_group %a group_id=21 : {F}\n%0 = sdy.propagation_barrier %a allowed_direction=BACKWARD : {F}",
    f'"sdy.sharding_group"(%a) <{{group_id = 21 : i64}}> : ({F}) -> ()\n'
    f'%0 = "sdy.propagation_barrier"(%a) <{{allowed_direction = 2 : i32}}> : ({F}) -> {F}',
]


@pytest.mark.parametrize("text", MARKERS)
def test_groups_and_barriers_of_shardings_are_custom_calls(text: str, peer: XlaPeer) -> None:
    for module in (hl.parse(main(text)), module_from_bytes(peer.from_stablehlo(main(text)))):
        calls = [i for i in module.entry.instructions if i.opcode == "custom-call"]
        said = {i.op.target_name: i.frontend_attributes for i in calls}  # type: ignore[attr-defined]
        assert said == {
            "xla.sdy.ShardingGroup": {"xla.sdy.sharding_group_id": "21 : i64"},
            "xla.sdy.PropagationBarrier": {"xla.sdy.allowed_direction": "2 : i32"},
        }
        hl.parse(print_stablehlo(module))


BYTES = b'\x00\x01a\xff\xc3\x7f\n"\\'


def test_bytes_of_a_backend_config_stay_bytes_in_every_format(tmp_path: Any, peer: XlaPeer) -> None:
    quoted = "".join(f"\\{byte:02X}" for byte in BYTES)
    module = hl.parse(main(f'%0 = stablehlo.custom_call @f(%a) {{backend_config = "{quoted}"}} : ({F}) -> {F}'))

    def config(module: hl.Module) -> bytes:
        return module.entry.root.backend_config.encode("utf-8", "surrogateescape")

    assert config(module) == BYTES
    for extension in ("hlo", "mlir", "mlirbc", "pb", "pbtxt"):
        hl.save(module, tmp_path / f"m.{extension}")
        assert config(hl.load(tmp_path / f"m.{extension}")) == BYTES, extension
    assert "\0" not in module.to_text()
    assert config(module_from_bytes(peer.from_stablehlo(print_stablehlo(module)))) == BYTES
    assert config(hl.parse(peer.parse(module.to_text()))) == BYTES


def test_an_infeed_config_is_bytes_too() -> None:
    module = hl.parse(
        'HloModule m\nENTRY e {\n t = token[] after-all()\n ROOT i = (f32[2], token[]) infeed(t), infeed_config="\\000\\377"\n}'
    )
    for again in (module_from_bytes(module_to_bytes(module)), hl.parse(text_of(bytecode_of(print_stablehlo(module))))):
        (fed,) = [i for i in again.entry.instructions if i.opcode == "infeed"]
        assert fed.op.infeed_config == "\0\udcff"  # type: ignore[attr-defined]


def test_precisions_are_left_out_beside_an_algorithm(peer: XlaPeer) -> None:
    """StableHLO has no precision beside an algorithm, which implies it."""
    line = "ROOT d = f32[4,4] dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    line += ", operand_precision={highest,default}, algorithm=dot_bf16_bf16_f32_x3"
    written = print_stablehlo(hl.parse(f"HloModule m\nENTRY e {{\n a = f32[4,4] parameter(0)\n {line}\n}}"))
    assert "num_primitive_operations = 3" in written and "precision = " not in written
    peer.from_stablehlo(written)


RAGGED_DIMENSIONS = (
    "dot_dimension_numbers = #mhlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]>, "
)
RAGGED_DIMENSIONS += "lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]"
MHLO = [
    ("%0, %i = mhlo.topk(%a, k = 2, largest = false) : tensor<4xf32> -> (tensor<2xf32>, tensor<2xi32>)", "tensor<2xf32>"),
    ('%0 = "mhlo.xla.rng_get_and_update_state"() {delta = 3 : i64} : () -> tensor<2xui64>', "tensor<2xui64>"),
    ('%0 = "mhlo.stochastic_convert"(%a, %r) : (tensor<4xf32>, tensor<4xui32>) -> tensor<4xi8>', "tensor<4xi8>"),
    (
        f'%0 = "mhlo.domain"(%a) {{kind = #mhlo<kind sharding>, entry_metadata = "", exit_metadata = "\\08\\02"}} : ({F}) -> {F}',
        F,
    ),
    (
        '%0:2 = "mhlo.all_to_all"(%a, %a) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : '
        f"({F}, {F}) -> ({F}, {F})",
        f"{F}, {F}",
    ),
    (
        f'%0 = "mhlo.ragged_dot"(%m, %n, %g) {{ragged_dot_dimension_numbers = #mhlo.ragged_dot<{RAGGED_DIMENSIONS}>}} : '
        "(tensor<4x3xf32>, tensor<2x3x5xf32>, tensor<2xi64>) -> tensor<4x5xf32>",
        "tensor<4x5xf32>",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("line", "result"), MHLO, ids=[line.partition("mhlo.")[2][:12] for line, _ in MHLO])
def test_ops_of_mhlo_that_stablehlo_does_not_have(line: str, result: str, peer: XlaPeer) -> None:
    arguments = f"%a: {F}, %r: tensor<4xui32>, %m: tensor<4x3xf32>, %n: tensor<2x3x5xf32>, %g: tensor<2xi64>"
    returned = "%0#0, %0#1" if "," in result else "%0"
    text = f"func.func @main({arguments}) -> ({result}) {{\n{line}\nreturn {returned} : {result}\n}}"
    module = hl.parse(text)
    theirs = module_from_bytes(peer.from_stablehlo(text))

    def lines(module: hl.Module) -> set[str]:
        named = [i for i in module.entry.instructions if i.opcode not in ("parameter", "get-tuple-element", "tuple")]
        return {re.sub(r"%[\w.\-]+|\{[\d,]*\}", "", str(i)) for i in named}

    assert lines(module) == lines(theirs)
    peer.parse(module.to_text())


def test_an_einsum_has_the_type_that_it_declares() -> None:
    line = '%0 = stablehlo.einsum %a, %a, config = "ab,cb->ac" : (tensor<2x3xi8>, tensor<2x3xi8>) -> tensor<2x2xi32>'
    array = np.array([[100, -90, 3], [7, 8, -128]], np.int8)
    wide = array.astype(np.int32)
    result = hl.compile(hl.parse(main(line, "%a: tensor<2x3xi8>", "tensor<2x2xi32>")))(array)
    assert np.array_equal(result, wide @ wide.T)


def test_random_bits_of_a_float_type_are_bits(peer: XlaPeer) -> None:
    """RNGBITGENERATOR-8: HLO's random bits are integers; StableHLO's floats are integers of the same width,
    reinterpreted.
    """
    types = "(tensor<2xui64>) -> (tensor<2xui64>, {})"
    line = "%s, %0 = stablehlo.rng_bit_generator %a, algorithm = THREE_FRY : "
    of_floats = hl.parse(main(line + types.format("tensor<8xf32>"), "%a: tensor<2xui64>", "tensor<8xf32>"))
    of_integers = hl.parse(main(line + types.format("tensor<8xui32>"), "%a: tensor<2xui64>", "tensor<8xui32>"))
    state = np.array([3, 4], np.uint64)
    floats, integers = (hl.compile(module)(state) for module in (of_floats, of_integers))
    assert floats.dtype == np.float32 and np.array_equal(floats.view(np.uint32), integers)


def test_a_bitcast_of_mhlo_reads_elements_in_row_major_order(peer: XlaPeer) -> None:
    layouts = "{result_layout = dense<[0, 1]> : tensor<2xindex>, source_layout = dense<[1, 0]> : tensor<2xindex>}"
    text = main(
        f"%0 = mhlo.bitcast %a {layouts} : (tensor<2x4xf32>) -> tensor<4x2xi32>",
        "%a: tensor<2x4xf32>",
        "tensor<4x2xi32>",
    )
    module = hl.parse(text)
    (array,) = inputs(module)
    assert np.array_equal(hl.compile(module)(array), array.view(np.int32).reshape(4, 2))
    assert "bitcast(" in module_from_bytes(peer.from_stablehlo(text)).to_text()
    assert np.array_equal(peer.run_stablehlo(print_stablehlo(module), [array])[0], array.view(np.int32).reshape(4, 2))


def test_device_counts_that_are_no_integers_are_ignored(peer: XlaPeer) -> None:
    text = f'module attributes {{mhlo.num_partitions = "", mhlo.num_replicas = "2"}} {{\n{main(NEGATED)}\n}}'
    peer.from_stablehlo(text)
    module = hl.parse(text)
    assert (module.replica_count, module.num_partitions) == (1, 1)


def test_a_loop_without_state_has_no_types(peer: XlaPeer) -> None:
    loop = "stablehlo.while() cond {\n%p = stablehlo.constant dense<false> : tensor<i1>\n"
    loop += f"stablehlo.return %p : tensor<i1>\n}} do {{\nstablehlo.return\n}}\n{NEGATED}"
    written = print_stablehlo(hl.parse(main(loop)))
    assert "stablehlo.while()\n" in written
    peer.from_stablehlo(written)
    hl.parse(written)


def test_one_type_stands_for_all_tokens(peer: XlaPeer) -> None:
    token = "!stablehlo.token"
    text = main(f"%0 = stablehlo.after_all %a, %b : {token}", f"%a: {token}, %b: {token}", token)
    written = print_stablehlo(hl.parse(text))
    assert f"stablehlo.after_all %arg0, %arg1 : {token}\n" in written
    peer.from_stablehlo(written)


def test_reshapes_between_bounded_sizes_are_kept(peer: XlaPeer) -> None:
    module = hl.parse(
        "HloModule m\nENTRY e {\n p = s32[2,6,4] parameter(0)\n n = s32[] constant(3)\n"
        " d = s32[2,<=6,4] set-dimension-size(p, n), dimensions={1}\n"
        " ROOT r = s32[<=12,4] reshape(d), inferred_dimension=0\n}"
    )
    written = print_stablehlo(module)
    peer.from_stablehlo(written)
    (array,) = inputs(module)
    result = hl.compile(hl.parse(written))(array)
    assert np.array_equal(result, array[:, :3].reshape(6, 4))
