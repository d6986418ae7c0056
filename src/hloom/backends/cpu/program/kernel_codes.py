"""Emits the code of operations with kernels of their own, once for each distinct instruction structure."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hloom.backends.cpu.elements.ops import can_apply
from hloom.backends.cpu.kernels.code import KernelCode
from hloom.ir import Computation, Instruction, Module, callees_first
from hloom.loops.lower import can_lower
from hloom.ops.control_flow import Fusion
from hloom.ops.convolution import Convolution
from hloom.ops.custom_call import CustomCall
from hloom.ops.dot import Dot
from hloom.ops.fft import Fft
from hloom.ops.operation import Operation
from hloom.ops.reduce_window import ReduceWindow, SelectAndScatter
from hloom.ops.registry import Registry
from hloom.ops.rng import RngBitGenerator
from hloom.ops.scatter import Scatter
from hloom.ops.sort import Sort, TopK
from hloom.passes.edit import applied_computations, calls, loops_of
from hloom.shape import Shape
from hloom.target import Target

KERNELS = Registry[[str, Instruction, Target], KernelCode | None]()
"""The code of kernels that are more than a loop nest, from (op, name, instruction, target)."""


def _from(module: str) -> Callable[[Operation, str, Instruction, Target], KernelCode | None]:
    """Returns `emit` of a module in `kernels`, which is imported when a program first needs it."""

    def emit(op: Operation, *arguments: Any) -> Any:
        return importlib.import_module(f"hloom.backends.cpu.kernels.{module}").emit(op, *arguments)

    return emit


_FUSIONS = _from("products.sliced_dot"), _from("products.fused_dot"), _from("scatter.fused_scatter")


def _fusion(op: Fusion, *arguments: Any) -> KernelCode | None:
    """Returns the code of a fusion whose root has a kernel of its own; None for others."""
    return next(filter(None, (emit(op, *arguments) for emit in _FUSIONS)), None)


KERNELS.add(Convolution, _from("convolution.convolution"))
KERNELS.add(CustomCall, _from("linear_algebra.routine"))
KERNELS.add(Dot, _from("products.dot"))
KERNELS.add(Fusion, _fusion)
KERNELS.add(Fft, _from("fft.fft"))
KERNELS.add(ReduceWindow, _from("scans.cumulative"))
KERNELS.add(RngBitGenerator, _from("rng"))
KERNELS.add(Scatter, _from("scatter.scatter"))
KERNELS.add(SelectAndScatter, _from("scatter.select_and_scatter"))
KERNELS.add(Sort, _from("sort.sort"))
KERNELS.add(TopK, _from("sort.top_k"))


@dataclass
class Structures:
    """Structural keys of instructions: instructions with equal keys share code.

    Computations are represented by ids, equal for computations of equal structure.
    """

    ids: dict[Any, int] = field(default_factory=dict)

    def of(self, instruction: Instruction) -> Any:
        """Returns the key of an instruction."""
        callee_ids: dict[Computation, int] = {}
        for computation in callees_first(*calls(instruction.op)):
            key = _computation_key(computation, callee_ids)
            callee_ids[computation] = self.ids.setdefault(key, len(self.ids))
        first_positions: dict[Instruction, int] = {}
        sharing = tuple(first_positions.setdefault(operand, k) for k, operand in enumerate(instruction.operands))
        shapes = tuple(_shape_key(o.shape) for o in instruction.operands)
        if isinstance(op := instruction.op, Fusion):
            return (Fusion, sharing, shapes, callee_ids[op.calls])
        if isinstance(op, CustomCall):
            shapes = (*shapes, instruction.backend_config)
        return (_operation_key(instruction, callee_ids), sharing, shapes, _shape_key(instruction.shape))


@dataclass
class KernelCodes:
    """Emits the code of instructions; instructions of equal structure share it."""

    target: Target
    written: dict[Any, KernelCode | None] = field(default_factory=dict)
    structures: Structures = field(default_factory=Structures)

    def of(self, instruction: Instruction) -> KernelCode | None:
        """Returns the code of an instruction; None if its operation has no kernel or a shape is dynamic."""
        shapes = [*instruction.shape.leaves(), *(leaf for o in instruction.operands for leaf in o.shape.leaves())]
        if instruction.op not in KERNELS or any(not shape.is_array or shape.is_dynamic for shape in shapes):
            return None
        key = self.structures.of(instruction)
        if key not in self.written:
            name = f"{instruction.opcode.replace('-', '_')}{len(self.written)}"
            emit = KERNELS[instruction.op]
            self.written[key] = emit(instruction.op, name, instruction, self.target)
        return self.written[key]


def codes_before_fusion(module: Module, codes: KernelCodes) -> dict[str, KernelCode]:
    """Returns the kernels that a module will call, by their entries; fusion leaves their instructions alone.

    Products in loops are left out, because packing may be hoisted out of the loop (`hoist_packing.py`).
    """
    known: dict[str, KernelCode] = {}
    in_loops = set(callees_first(*[callee for loop in loops_of(module) for callee in calls(loop.op)]))
    for computation in _run_computations(module):
        for instruction in computation.instructions:
            code = codes.of(instruction) if _has_kernel(instruction) else None
            if code is not None and (code.packed is None or computation not in in_loops):
                known[code.entry] = code
    return known


def _run_computations(module: Module) -> Iterator[Computation]:
    applied = applied_computations(module)
    return (computation for computation in callees_first(module.entry) if computation not in applied)


def _has_kernel(instruction: Instruction) -> bool:
    return instruction.op in KERNELS and not can_lower(instruction, can_apply)


def _computation_key(computation: Computation, callee_ids: Mapping[Computation, int]) -> Any:
    positions = {instruction: k for k, instruction in enumerate(computation.instructions)}
    rows = tuple(
        (_operation_key(i, callee_ids), _shape_key(i.shape), tuple(positions[o] for o in i.operands))
        for i in computation.instructions
    )
    return rows, positions[computation.root]


def _operation_key(instruction: Instruction, callee_ids: Mapping[Computation, int]) -> Any:
    op = instruction.op
    called = calls(op)
    if not called:
        return op
    rest = tuple(v for v in op.__dict__.values() if not isinstance(v, (Computation, tuple)))
    tuples = tuple(
        v for v in op.__dict__.values() if isinstance(v, tuple) and not any(isinstance(c, Computation) for c in v)
    )
    return op.opcode, rest, tuples, tuple(callee_ids[c] for c in called)


def _shape_key(shape: Shape) -> Any:
    if shape.is_tuple:
        return tuple(_shape_key(element) for element in shape.elements)
    return shape.element_type, shape.dimensions
