"""Custom calls with registered partitioners, local calls and inspectors."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hloom.errors import ArgumentError
from hloom.ir import Instruction
from hloom.passes.spmd.partitioner import partition
from hloom.passes.spmd.planning.custom import (
    PartitionedCall,
    register_inspector,
    register_local,
    register_partitioner,
    sharding_rule,
)
from hloom.runtime.custom_calls.registry import register_custom_call
from hloom.sharding import Sharding
from hloom.text.scanner import Scanner
from hloom.text.sharding import scan_sharding
from hloom.verifier import verify_module
from passes.spmd.partitions import collectives, run, shard_array

ROWS, COLUMNS = "{devices=[4,1]<=[4]}", "{devices=[1,4]<=[4]}"
RULE = 'frontend_attributes={xla.sdy.sharding_rule="#sdy.op_sharding_rule<RULE, custom>"}'
X = np.arange(32, dtype=np.float32).reshape(8, 4)


def module(body: str) -> hl.Module:
    return hl.parse(f"HloModule m\n\nENTRY main {{\n{body}\n}}")


def sharding(text: str) -> Sharding:
    return scan_sharding(Scanner(text))


def row_sums(rows: int) -> hl.Module:
    """The sums over blocks of some rows."""
    return hl.parse(f"""HloModule part

add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

ENTRY main {{
  x = f32[{rows},4] parameter(0)
  zero = f32[] constant(0)
  sums = f32[{rows}] reduce(x, zero), dimensions={{1}}, to_apply=add
  ROOT t = (f32[{rows}]) tuple(sums)
}}""")


@pytest.mark.parametrize(
    ("operand", "result"),
    [
        (ROWS, "{devices=[4]<=[4]}"),
        ("{devices=[4,1]3,1,0,2}", "{devices=[4]3,1,0,2}"),  # in an order that no mesh has
    ],
)
def test_a_partitioner_chooses_shardings_and_builds_the_program(operand: str, result: str) -> None:
    seen: list[list[Sharding]] = []

    def by_rows(call: Instruction, operands: list[Sharding], results: list[Sharding]) -> PartitionedCall:
        seen.append([*operands, *results])
        return PartitionedCall(row_sums(2), [sharding(operand)], [sharding(result)])

    register_partitioner("test.by_rows", by_rows)
    rule = RULE.replace("RULE", "([i, j])->([i]) {i=8, j=4}")
    program = module(
        f"x = f32[8,4] parameter(0), sharding={COLUMNS}\n add = f32[8,4] add(x, x), sharding={ROWS}\n"
        f'r = f32[8] custom-call(add), custom_call_target="test.by_rows", {rule}\n'
        "s = f32[8] negate(r)\n ROOT t = (f32[8], f32[8]) tuple(r, s)"
    )
    made = partition(program, 4)
    verify_module(made.module)
    got = run(made, [X], [*program.entry.result_shape.leaves()], "interpreter")
    np.testing.assert_array_equal(got[0], 2 * X.sum(axis=1))
    np.testing.assert_array_equal(got[1], -2 * X.sum(axis=1))
    ((have, want),) = seen
    assert have == sharding(COLUMNS) and want == sharding("{replicated}")


def test_shardings_propagate_along_the_rule_of_a_call() -> None:
    register_partitioner("test.same", lambda call, operands, results: PartitionedCall(row_sums(2), operands, results))
    rule = RULE.replace("RULE", "([i, j])->([i]) {i=8, j=4}")
    program = module(
        f"x = f32[8,4] parameter(0), sharding={ROWS}\n"
        f'ROOT r = f32[8] custom-call(x), custom_call_target="test.same", {rule}'
    )
    made = partition(program, 4)
    assert made.results == [sharding("{devices=[4]<=[4]}")]
    (got,) = run(made, [X], [program.entry.result_shape], "cpu")
    np.testing.assert_array_equal(got, X.sum(axis=1))


def test_local_calls_see_the_blocks_of_their_partition() -> None:
    seen = []
    register_local("test.local")
    register_custom_call("test.local", lambda block: seen.append(block.copy()) or ())
    program = module(
        f"x = f32[8,4] parameter(0), sharding={ROWS}\n y = f32[8,4] add(x, x)\n"
        'e = () custom-call(y), custom_call_target="test.local", custom_call_has_side_effect=true\n'
        "ROOT n = f32[8,4] negate(y)"
    )
    (got,) = run(partition(program, 4), [X], [program.entry.result_shape], "cpu")
    np.testing.assert_array_equal(got, -2 * X)
    want = [2 * block for block in shard_array(X, sharding(ROWS), 4)]
    np.testing.assert_array_equal(sorted(map(np.ndarray.tolist, seen)), [block.tolist() for block in want])


def test_inspectors_receive_the_sharding_and_leave_no_operation() -> None:
    told: list[tuple[str, Sharding]] = []
    register_inspector("test.inspect", lambda call, found: told.append((call.backend_config, found)))
    program = module(
        f"x = f32[8,4] parameter(0), sharding={ROWS}\n y = f32[8,4] sine(x)\n"
        'i = f32[8,4] custom-call(y), custom_call_target="test.inspect", custom_call_has_side_effect=true, '
        'backend_config="this one"\n ROOT n = f32[4,8] transpose(y), dimensions={1,0}'
    )
    made = partition(program, 4)
    assert told == [("this one", sharding(ROWS))]
    assert not any(i.opcode == "custom-call" for i in made.module.instructions())


@pytest.mark.parametrize(
    ("rule", "labels"),
    [
        ("([i, j], [j, k])->([i, k]) {i=8, j=4, k=2} reduction={j}", ((("i", "j"), ("j", "k")), (("i", "k"),))),
        ("([ia, j], [j, z_1])->([i, z_1]) {i=2, a=4, j=4, z_1=2}", ((("i", "j"), ("j", "z_1")), (("i", "z_1"),))),
        (
            "([i, j], [j, k])->([i, k]) {i=8, j=4, k=2} need_replication={j}",
            ((("i", None), (None, "k")), (("i", "k"),)),
        ),
    ],
)
def test_rules_of_shardy_are_read(rule: str, labels: object) -> None:
    found = sharding_rule(call_with(rule))
    assert (found.operands, found.results) == labels


def test_a_rule_for_other_arrays_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"the factors of each dimension of \(f32\[8,4\], f32\[4,2\]\) -> "):
        sharding_rule(call_with("([i, j])->([i]) {i=8, j=4}"))


def call_with(rule: str) -> Instruction:
    return module(
        "a = f32[8,4] parameter(0)\n b = f32[4,2] parameter(1)\n"
        f'ROOT r = f32[8,2] custom-call(a, b), custom_call_target="f", {RULE.replace("RULE", rule)}'
    ).entry.root


def test_batches_of_linear_algebra_stay_sharded() -> None:
    register_custom_call("test.rows_reversed", lambda a: (a[..., ::-1, :], a[..., 0, 0]))
    a = np.arange(64, dtype=np.float32).reshape(4, 4, 4)
    program = module(
        "a = f32[4,4,4] parameter(0), sharding={devices=[4,1,1]<=[4]}\n"
        'c = (f32[4,4,4], f32[4]) custom-call(a), custom_call_target="test.rows_reversed", '
        'frontend_attributes={num_batch_dims="1"}\n'
        "x = f32[4,4,4] get-tuple-element(c), index=0\n y = f32[4] get-tuple-element(c), index=1\n"
        "ROOT t = (f32[4,4,4], f32[4]) tuple(x, y)"
    )
    made = partition(program, 4)
    assert not collectives(made.module)
    got = run(made, [a], [*program.entry.result_shape.leaves()], "cpu")
    np.testing.assert_array_equal(got[0], a[:, ::-1, :])
    np.testing.assert_array_equal(got[1], a[:, 0, 0])


def test_layout_constraints_let_shardings_through() -> None:
    program = module(
        f"x = f32[8,4] parameter(0), sharding={ROWS}\n"
        'ROOT r = f32[8,4] custom-call(x), custom_call_target="LayoutConstraint"'
    )
    made = partition(program, 4)
    assert made.results == [sharding(ROWS)] and not collectives(made.module)


def test_open_parameters_come_as_their_users_want_them() -> None:
    program = module(
        f"x = f32[8,4] parameter(0), sharding={ROWS}\n y = f32[8,4] parameter(1)\n ROOT s = f32[8,4] add(x, y)"
    )
    for flags, want in (([True], ROWS), ([False, True], ROWS), (None, "{replicated}"), ([True, False], "{replicated}")):
        made = partition(program, 4, open_parameters=flags)
        assert made.parameters == [sharding(ROWS), sharding(want)]
        np.testing.assert_array_equal(run(made, [X, X], [program.entry.result_shape], "interpreter")[0], 2 * X)
    with pytest.raises(ArgumentError, match="the program has 2 parameters, got 3 flags"):
        partition(program, 4, open_parameters=[True] * 3)


def test_members_of_a_group_take_the_sharding_of_the_smallest_blocks() -> None:
    group = 'custom_call_target="xla.sdy.ShardingGroup", frontend_attributes={xla.sdy.sharding_group_id="0 : i64"}'
    program = module(
        "x = f32[8,4] parameter(0), sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}\n"
        "y = f32[8,4] parameter(1), sharding={devices=[2,2]<=[4]}\n"
        "a = f32[8,4] sine(x)\n b = f32[8,4] cosine(y)\n"
        f"g = () custom-call(a), {group}, custom_call_has_side_effect=true\n"
        f"h = () custom-call(b), {group}, custom_call_has_side_effect=true\n"
        "ROOT t = (f32[8,4], f32[8,4]) tuple(a, b)"
    )
    transposed = "{devices=[1,4]<=[2,2]T(1,0)}"
    assert partition(program, 4).results == [sharding("{devices=[2,2]<=[4]}")] * 2
    program.entry.parameters[0].sharding = sharding(transposed)
    made = partition(program, 4)
    assert made.results == [sharding(transposed)] * 2
    got = run(made, [X, X], [*program.entry.result_shape.leaves()], "interpreter")
    np.testing.assert_allclose(got[0], np.sin(X), rtol=1e-6)
    np.testing.assert_allclose(got[1], np.cos(X), rtol=1e-6)
