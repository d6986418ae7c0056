"""Outlines scalar computations that contain loops or arrays as native functions, which kernels call.

Such a computation is compiled as a small program: one function whose steps use buffers on the stack. It is replaced by
a computation of a single element-wise operation, which every kernel that applies combiners or comparators supports.
"""

from __future__ import annotations

import hashlib
from typing import ClassVar

import numpy as np

from hloom.backends.cpu.codegen.emitter import FunctionEmitter
from hloom.backends.cpu.elements.ops import can_apply
from hloom.backends.cpu.elements.scalar_function import ScalarFunction, ScalarFunctionCall
from hloom.backends.cpu.elements.types import is_native
from hloom.backends.cpu.program.buffer_assignment import assign_buffers
from hloom.backends.cpu.program.build_program import build_program
from hloom.backends.cpu.program.program import Buffer, Program, Routine
from hloom.ir import Computation, Module, callees_first, clone_graph
from hloom.lir import Global, LirModule
from hloom.loops.lower import can_lower
from hloom.loops.scalar_computation import can_compute
from hloom.ops.traits import AppliesScalar
from hloom.passes.edit import callees_first_of
from hloom.passes.fusion.fusion import FusionPass
from hloom.passes.op_builder import OpBuilder, new_computation
from hloom.system.records import record
from hloom.target import Target


@record
class ScalarComputationOutliner:
    """Before: sort(..), to_apply=f, where f holds a loop. After: sort(..), to_apply=g, which calls f as a function."""

    vector_bytes: int
    name: ClassVar[str] = "scalar-computation-outlining"
    operations: ClassVar[tuple[type, ...]] = (AppliesScalar,)

    def run(self, module: Module) -> int:
        """Outlines the applied computations of a module. Returns the number of changes."""
        outlined_computations: dict[int, Computation] = {}
        for computation in callees_first(module.entry):
            for instruction in computation.instructions:
                if isinstance(instruction.op, AppliesScalar):
                    instruction.op = instruction.op.with_computations(
                        lambda c: self._outlined(module, c, outlined_computations)
                    )
        changes = sum(id(new) not in outlined_computations for new in outlined_computations.values())
        if changes:
            module.computations = callees_first_of(module)
        return changes

    def _outlined(
        self, module: Module, computation: Computation, outlined_computations: dict[int, Computation]
    ) -> Computation:
        if id(computation) not in outlined_computations:
            new = None if can_compute(computation, can_apply) else self._function(module, computation)
            outlined_computations[id(computation)] = new or computation
        return outlined_computations[id(computation)]

    def _function(self, module: Module, computation: Computation) -> Computation | None:
        shapes = [*computation.parameter_shapes, *computation.result_shape.leaves()]
        if not all(shape.is_scalar and is_native(shape.element_type) for shape in shapes):
            return None
        function = scalar_function(computation, self.vector_bytes)
        return None if function is None else _caller(module, computation, function)


def _caller(module: Module, computation: Computation, function: ScalarFunction) -> Computation:
    caller = new_computation(module, f"{computation.name}.function")
    build = OpBuilder.of(caller)
    parameters = [build.parameter(k, shape) for k, shape in enumerate(computation.parameter_shapes)]
    results = [
        build(ScalarFunctionCall(function=function, position=k, calls=computation), *parameters, shape=shape)
        for k, shape in enumerate(computation.result_shape.leaves())
    ]
    if computation.result_shape.is_tuple:
        build.tuple(*results)
    return caller


def scalar_function(computation: Computation, vector_bytes: int) -> ScalarFunction | None:
    """Returns the native function of a computation of scalars; None if a part of it has no native code."""
    module = Module("scalar_function")
    for original, copy in clone_graph(computation).items():
        module.add(copy, entry=original is computation)
    FusionPass(can_fuse=lambda instruction: can_lower(instruction, can_apply)).run(module)
    program = build_program(module, Target(vector_bytes, threads=1), with_calls=False)
    if program.host_steps or program.slot_count or any(isinstance(buffer, Routine) for buffer in program.buffers):
        return None
    return _emit(program, computation, vector_bytes)


def _emit(program: Program, computation: Computation, vector_bytes: int) -> ScalarFunction:
    assignment = assign_buffers(program, donate=False)
    assignment.offsets.clear()  # buffers without an offset lie on the stack
    constants = {buffer: _constant(buffer) for buffer in program.of_kind("constant")}
    functions = FunctionEmitter(program, assignment, vector_bytes).definitions("body", constants)
    digest = hashlib.sha256(LirModule(functions).text().encode()).hexdigest()[:12]
    names = {function.name: f"scalar.{digest}.{function.name}" for function in functions}
    for function in functions:
        function.rename(names)
    return ScalarFunction(
        functions[0].name,
        tuple(functions),
        tuple(shape.element_type for shape in computation.parameter_shapes),
        tuple(shape.element_type for shape in computation.result_shape.leaves()),
    )


def _constant(buffer: Buffer) -> Global:
    assert buffer.data is not None
    content = np.ascontiguousarray(buffer.data).tobytes() or b"\0"
    return Global(f"constant.{hashlib.sha256(content).hexdigest()[:12]}", content, align=64)
