"""Indexing maps: the elements that a map names are those of which the interpreter computes the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import hloom as hl
from hlo_text import module_text
from hloom.affine import Index, IndexSpace
from hloom.faults.case import extract
from hloom.ops.indexing import Indexing, Indices, Read
from hloom.ops.operation import OPERATIONS, Operation
from hloom.ops.traits import Movement
from hloom.prove.verdicts import instances
from hloom.types import PrimitiveType
from verdict_cases import RULES

MOVEMENTS = {
    "transpose": ["f32[4,2,3] transpose(f32[2,3,4] p0), dimensions={2,0,1}"],
    "reverse": ["f32[3,4] reverse(f32[3,4] p0), dimensions={0}", "f32[3,4] reverse(f32[3,4] p0), dimensions={0,1}"],
    "broadcast": [
        "f32[2,5,3] broadcast(f32[2,3] p0), dimensions={0,2}",
        "f32[3,2] broadcast(f32[2,3] p0), dimensions={1,0}",
        "f32[4] broadcast(f32[] p0), dimensions={}",
    ],
    "reshape": ["f32[4,6] reshape(f32[2,3,4] p0)", "f32[6,4,1] reshape(f32[4,6] p0)", "f32[] reshape(f32[1,1] p0)"],
    "bitcast": ["f32[4,6]{1,0} bitcast(f32[2,3,4]{2,1,0} p0)"],
    "copy": ["f32[2,3]{0,1} copy(f32[2,3] p0)"],
    "slice": ["f32[2,2] slice(f32[5,4] p0), slice={[1:5:2], [0:2]}"],
    "dynamic-slice": [
        "f32[2,3] dynamic-slice(f32[4,5] p0, s32[] p1, s32[] p2), dynamic_slice_sizes={2,3}",
        "f32[2,5] dynamic-slice(f32[4,5] p0, s8[2] p1), dynamic_slice_sizes={2,5}",
    ],
    "dynamic-update-slice": [
        "f32[4,5] dynamic-update-slice(f32[4,5] p0, f32[2,3] p1, s32[] p2, s32[] p3)",
        "f32[4,5] dynamic-update-slice(f32[4,5] p0, f32[2,5] p1, s32[] p2, s32[] p3)",
    ],
    "pad": [
        "f32[6,7] pad(f32[2,3] p0, f32[] p1), padding=1_2_1x2_0_1",
        "f32[1,5] pad(f32[3,4] p0, f32[] p1), padding=-1_-1x-2_0_1",
    ],
    "concatenate": [
        "f32[2,6] concatenate(f32[2,1] p0, f32[2,3] p1, f32[2,2] p2), dimensions={1}",
        "f32[3,2] concatenate(f32[1,2] p0, f32[0,2] p1, f32[2,2] p2), dimensions={0}",
    ],
    "gather": [
        "f32[3,2,4] gather(f32[5,4] p0, s32[3,2,1] p1), offset_dims={2}, collapsed_slice_dims={0}, "
        "start_index_map={0}, index_vector_dim=2, slice_sizes={1,4}",
        "f32[2,3,2] gather(f32[5,4] p0, s32[2,3] p1), offset_dims={0,2}, collapsed_slice_dims={}, "
        "start_index_map={1,0}, index_vector_dim=0, slice_sizes={2,2}",
        "f32[3,2] gather(f32[3,5] p0, s32[3] p1), offset_dims={1}, collapsed_slice_dims={}, start_index_map={1}, "
        "operand_batching_dims={0}, start_indices_batching_dims={0}, index_vector_dim=1, slice_sizes={1,2}",
    ],
}  # fmt: skip
"""Instructions for each movement with a map."""


class Evaluation(Indexing):
    """Context in which every index is a constant: run-time values are elements of the arguments."""

    def __init__(self, instruction: hl.Instruction, arguments: Sequence[np.ndarray[Any, Any]]) -> None:
        super().__init__(IndexSpace(), instruction.shape, instruction.operand_shapes)
        self.arguments = arguments

    def runtime(self, operand: int, index: Indices, low: int, high: int) -> Index:
        value = int(self.arguments[operand][constants(index)])
        return self.space.constant(min(max(value, low), high))


def constants(index: Indices) -> tuple[int, ...]:
    assert not any(i.terms for i in index)
    return tuple(i.constant for i in index)


def module_of(text: str) -> hl.Module:
    """The module of one instruction, whose operands are its parameters."""
    operands = text[text.index("(") + 1 : text.index(")")].split(", ")
    parameters = "".join(f"{o.split()[1]} = {o.split()[0]} parameter({k})\n" for k, o in enumerate(operands))
    return hl.parse(module_text(f"{parameters}ROOT r = {text}"))


def arguments_of(module: hl.Module, seed: int) -> list[np.ndarray[Any, Any]]:
    """Arrays without equal elements; indices may be out of bounds."""
    random = np.random.default_rng(seed)
    shapes = module.entry.parameter_shapes
    elements = iter(random.permutation(sum(shape.element_count for shape in shapes)))
    return [
        random.integers(-2, 7, shape.dimensions).astype(shape.element_type.dtype)
        if shape.element_type.is_integer
        else np.array([next(elements) for _ in range(shape.element_count)], np.float32).reshape(shape.dimensions)
        for shape in shapes
    ]


def element_read(op: Operation, at: Evaluation, index: tuple[int, ...]) -> Read:
    """The read whose conditions hold at an index."""
    reads = op.indexing(at, tuple(map(at.space.constant, index)))
    assert reads is not None
    return next(read for read in reads if all(condition.holds for condition in read.conditions))


def test_every_movement_with_a_map_is_tested() -> None:
    mapped = {name for name, op in OPERATIONS.items() if issubclass(op, Movement) and op.has_indexing()}
    assert mapped == set(MOVEMENTS)


@pytest.mark.parametrize("text", [text for texts in MOVEMENTS.values() for text in texts])
def test_result_elements_are_those_that_the_map_names(text: str) -> None:
    module = module_of(text)
    for seed in range(4):
        check_elements(module, arguments_of(module, seed))


def check_elements(module: hl.Module, arguments: Sequence[np.ndarray[Any, Any]]) -> None:
    instruction = module.entry.root
    result = hl.compile(module, backend="interpreter")(*arguments)
    assert isinstance(result, np.ndarray)
    given = [arguments[module.entry.parameters.index(operand)] for operand in instruction.operands]
    for index in np.ndindex(*instruction.shape.dimensions):
        read = element_read(instruction.op, Evaluation(instruction, given), index)
        assert result[index] == given[read.operand][constants(read.index)], (index, read)


@pytest.mark.long
@pytest.mark.parametrize("part", range(4))
def test_maps_of_random_instructions_name_the_elements(part: int) -> None:
    """Movements in instances of the patterns of rewrite rules: all attributes, sizes of 0 to 3."""
    count = 0
    for pattern in sorted({rule.pattern for rule in RULES})[part::4]:
        for instance in instances("maps", pattern, PrimitiveType.F32):
            for instruction in instance.module.entry.instructions:
                op, types = instruction.op, {shape.element_type for shape in instruction.operand_shapes}
                is_drawn = all(type is PrimitiveType.F32 or type.is_integer for type in types)
                if isinstance(op, Movement) and op.has_indexing() and is_drawn:
                    module, _ = extract("m", [instruction], instruction.operands)
                    check_elements(module, arguments_of(module, count))
                    count += 1
    assert count > 100


@pytest.mark.parametrize(
    ("text", "shown", "independent"),
    [
        ("f32[3,2] transpose(f32[2,3] p0), dimensions={1,0}", "(d0, d1) -> operand0(d1, d0)", "d0 d1"),
        ("f32[2,4] slice(f32[5,4] p0), slice={[1:5:2], [0:4]}", "(d0, d1) -> operand0(2*d0 + 1, d1)", "d1"),
        (
            "f32[3,8] pad(f32[3,4] p0, f32[] p1), padding=0_0x1_0_1",
            "(d0, d1) -> operand0(d0, ((d1 + 1) // 2) + -1) if 0 <= d1 + -1 < 7 and 0 <= ((d1 + 1) mod 2) < 1; operand1()",
            "d0",
        ),
        (
            "f32[3,4] gather(f32[5,4] p0, s32[3] p1), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, "
            "index_vector_dim=1, slice_sizes={1,4}",
            "(d0, d1) -> operand0(clamp(0, operand1(d0), 4), d1)",
            "d0 d1",
        ),
        ("f32[6] reshape(f32[2,3] p0)", "(d0) -> operand0((d0 // 3), (d0 mod 3))", ""),
        (
            "f32[2,3,5] dot(f32[2,3,4] p0, f32[2,4,5] p1), lhs_batch_dims={0}, rhs_batch_dims={0}, "
            "lhs_contracting_dims={2}, rhs_contracting_dims={1}",
            "(d0, d1, d2)[r0] -> operand0(d0, d1, r0); operand1(d0, r0, d2)",
            "d0 d1 d2 r0",
        ),
        (
            "f32[4] reduce(f32[4,6] p0, f32[] p1), dimensions={1}, to_apply=sum",
            "(d0)[r0] -> operand0(d0, r0); operand1()",
            "d0 r0",
        ),
    ],
)  # fmt: skip
def test_maps_of_whole_arrays(text: str, shown: str, independent: str) -> None:
    instruction = module_of(text).entry.root
    mapped = instruction.indexing_map()
    assert mapped is not None
    assert str(mapped) == shown
    assert {v.name for v in mapped.independent} == {*independent.split()}


def test_maps_need_element_indices() -> None:
    sort = module_of("f32[4] sort(f32[4] p0), dimensions={0}, to_apply=less").entry.root
    assert sort.indexing_map() is None
