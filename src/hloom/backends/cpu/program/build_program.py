"""Translates the entry computation of a module, and its callees, to the steps of a program."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from hloom.analysis.counted_loop import carried_index, trip_count
from hloom.backends.cpu.elements.ops import can_apply
from hloom.backends.cpu.kernels.code import KernelCode
from hloom.backends.cpu.program.filled_arrays import filled_elements, unread_values
from hloom.backends.cpu.program.functions import functions_of, running_computations
from hloom.backends.cpu.program.hoist_packing import hoist_packing
from hloom.backends.cpu.program.kernel_codes import KernelCodes
from hloom.backends.cpu.program.parallel_loops import fills_threads, independent_iterations, may_run_in_parallel
from hloom.backends.cpu.program.program import (
    TOKEN_SLOT,
    Buffer,
    BufferTree,
    CallStep,
    CodeStep,
    ConditionalStep,
    CopyStep,
    HostStep,
    KernelStep,
    LoopInfo,
    ParallelLoop,
    Program,
    Slot,
    Step,
    Subroutine,
    WhileStep,
    buffers_of,
)
from hloom.backends.cpu.program.program_buffers import ProgramBuffers
from hloom.backends.interpreter.plan import Plans
from hloom.ir import Computation, Instruction, Module
from hloom.loops.lower import Lowered, can_lower, copy_kernel, lower
from hloom.loops.nest import BufferType, Kernel
from hloom.loops.schedule import schedule
from hloom.ops.control_flow import Call, Conditional, Fusion, While
from hloom.ops.convert import BitcastConvert
from hloom.ops.dot import Dot
from hloom.ops.reshape import Reshape
from hloom.ops.scatter import Scatter
from hloom.ops.structure import AfterAll, GetTupleElement, Tuple
from hloom.ops.traits import ControlFlow, Identity
from hloom.passes.edit import constant_value, inlined_size
from hloom.passes.optional import is_left_out, optional
from hloom.shape import Shape
from hloom.target import Target
from hloom.types import BY_DTYPE, PrimitiveType
from hloom.values import leaves

MAX_INLINED = 1 << 13
"""Instructions that a computation may expand to if it needs the host, which rules out a subroutine."""
COPY_COST = 5 / 64
"""Cost of a byte, in additions; one core cannot saturate the memory system, but moves bytes in the caches as fast."""
PARALLEL_LOOPS = "parallel-loops"
"""Name of the parallel-loop analysis; if it fails, programs compile without it."""


def build_program(module: Module, target: Target, with_calls: bool = True, codes: KernelCodes | None = None) -> Program:
    """Returns the program of a module after the passes.

    `with_calls` allows subroutines for computations with several callers; `codes` may hold kernels that are already
    emitted.
    """
    order = running_computations(module.entry)
    program = Program(module=module, plans=Plans(module.entry))
    shared = _Shared(codes or KernelCodes(target))
    functions = functions_of(order) if with_calls else set()
    sizes: dict[Computation, int] = {}
    for computation in order[:-1]:
        sizes[computation] = inlined_size(computation, sizes)
        if sizes[computation] - len(computation.instructions) > MAX_INLINED:
            shared.too_long.add(computation)
        elif computation in functions:
            _add_subroutine(computation, program, shared)
        if computation in shared.too_long or computation in shared.subroutines:
            sizes[computation] = 1
    _Builder(program, shared).build(module.entry)
    program.subroutines = [*shared.subroutines.values()]
    return program


@dataclass
class _Shared:
    """State shared by a program and its subroutines."""

    codes: KernelCodes
    kernels: dict[Any, Lowered] = field(default_factory=dict)
    copies: dict[int, Kernel] = field(default_factory=dict)
    """Copy kernels by size in bytes."""
    subroutines: dict[Computation, Subroutine] = field(default_factory=dict)
    too_long: set[Computation] = field(default_factory=set)
    """Computations that need the host and would expand to too many steps: the host runs them as a whole."""


def _add_subroutine(callee: Computation, caller: Program, shared: _Shared) -> None:
    """Makes a computation a subroutine, unless it needs the host."""
    if all(shape.is_static for shape in (*callee.parameter_shapes, callee.result_shape)):
        program = Program(module=caller.module, plans=caller.plans, loops=caller.loops)
        _Builder(program, shared).build(callee)
        if not program.host_steps and not program.slot_count:
            shared.subroutines[callee] = Subroutine(f"hloom_sub{len(shared.subroutines)}", program)


class _Builder:
    def __init__(self, program: Program, shared: _Shared) -> None:
        self.program = program
        self.shared = shared
        self.buffers = ProgramBuffers(program)
        self.filled: dict[Instruction, Set[int]] = {}
        """Elements of the states of loops whose values before the loop nobody reads."""

    def build(self, computation: Computation) -> Program:
        program = self.program
        program.parameters = [self.buffers.new_value(p.shape, "parameter") for p in computation.parameters]
        value = self._inline(computation, program.parameters, program.steps)
        program.result = self.buffers.new_outputs(value, computation.result_shape)
        self._copy(program.result, value, program.steps)
        return program

    # Computations

    def _inline(self, computation: Computation, arguments: Sequence[BufferTree], steps: list[Step]) -> BufferTree:
        """Appends the steps of a computation and returns its result."""
        plan = self.program.plans[id(computation)]
        values: dict[Instruction, BufferTree] = dict(zip(computation.parameters, arguments, strict=True))
        filled = filled_elements(computation)
        self.filled |= filled
        values |= {unread: self.buffers.new_value(unread.shape) for unread in unread_values(filled)}

        def value_of(instruction: Instruction) -> BufferTree:
            if instruction not in values:
                values[instruction] = self.buffers.constant(instruction.shape, constant_value(instruction))
            return values[instruction]

        for planned in plan.steps:
            instruction = planned.instruction
            if instruction in values:
                continue
            operands = [value_of(operand) for operand in instruction.operands]
            values[instruction] = result = self._instruction(instruction, operands, steps)
            for leaf in leaves(result) if not isinstance(instruction.op, (Tuple, GetTupleElement)) else ():
                self.program.origins.setdefault(leaf, instruction)
        return value_of(computation.root)

    def _instruction(self, instruction: Instruction, operands: list[BufferTree], steps: list[Step]) -> BufferTree:
        """Appends the steps of an instruction, and returns its value."""
        value = self._forwarded(instruction, operands)
        if value is not None:
            return value
        if self._needs_host(instruction, operands):
            return self._host(instruction, operands, steps)
        match instruction.op:
            case Call(computation=computation):
                return self._apply(computation, operands, steps)
            case While() as op:
                return self._while(op, instruction, operands[0], steps)
            case Conditional() as op:
                return self._conditional(op, instruction, operands, steps)
            case BitcastConvert() if self._is_reinterpreted(instruction):
                result = self.buffers.new_value(instruction.shape)
                self._copy(result, operands[0], steps)
                return result
            case Fusion(calls=computation) if not isinstance(computation.root.op, (Dot, Scatter)):
                return self._kernel(instruction, operands, steps)
        return self._computed(instruction, operands, steps)

    def _forwarded(self, instruction: Instruction, operands: list[BufferTree]) -> BufferTree | None:
        """Returns the value of an instruction that computes nothing; None for others."""
        match instruction.op:
            case Tuple():
                return tuple(operands)
            case GetTupleElement(index=index) if isinstance(operands[0], tuple):
                return operands[0][index]
            case Identity() if instruction.shape.compatible(instruction.operands[0].shape):
                return operands[0]
            case Reshape() if isinstance(operands[0], Buffer) and not instruction.shape.is_dynamic:
                return operands[0]
            case AfterAll():
                return TOKEN_SLOT
        return None

    def _needs_host(self, instruction: Instruction, operands: list[BufferTree]) -> bool:
        """Whether the host holds an operand or the state of a loop, or runs a computation too long to be inlined."""
        op = instruction.op
        if any(isinstance(leaf, Slot) and leaf != TOKEN_SLOT for operand in operands for leaf in leaves(operand)):
            return True
        if isinstance(op, (While, Conditional)) and not _is_native_shape(instruction.shape):
            return True
        return isinstance(op, ControlFlow) and not self.shared.too_long.isdisjoint(op.computations)

    def _computed(self, instruction: Instruction, operands: list[BufferTree], steps: list[Step]) -> BufferTree:
        """Appends a loop nest, a kernel of the operation's own, or else a host step."""
        if can_lower(instruction, can_apply):
            return self._kernel(instruction, operands, steps)
        code = self.shared.codes.of(instruction)
        if code is not None:
            return self._code_step(instruction, code, operands, steps)
        if can_lower(instruction, can_apply, any_window=True):
            return self._kernel(instruction, operands, steps)
        return self._host(instruction, operands, steps)

    def _apply(self, computation: Computation, arguments: Sequence[BufferTree], steps: list[Step]) -> BufferTree:
        """Appends the steps of a computation, or a call of its subroutine, and returns its result."""
        subroutine = self.shared.subroutines.get(computation)
        if subroutine is None:
            return self._inline(computation, arguments, steps)
        result = self.buffers.new_value(computation.result_shape)
        constants = [self.buffers.constant_like(buffer) for buffer in subroutine.program.of_kind("constant")]
        scratch = self.buffers.new_bytes(0)
        subroutine.scratches.append(scratch)
        steps.append(CallStep(subroutine, buffers_of(arguments), buffers_of([result]), constants, scratch))
        return result

    def _code_step(
        self, instruction: Instruction, code: KernelCode, operands: list[BufferTree], steps: list[Step]
    ) -> BufferTree:
        result = self.buffers.new_value(instruction.shape)
        inputs, results = buffers_of(operands), buffers_of([result])
        if isinstance(instruction.op, Scatter):
            # The kernel updates its first operands in place.
            for k, (target, source) in enumerate(zip(results, inputs, strict=False)):
                self._copy(target, source, steps)
                inputs[k] = target
        inputs += [self.buffers.routine(name) for name in code.routines]
        if code.table is not None:
            inputs.append(
                self.buffers.constant_array(Shape.array(BY_DTYPE[code.table.dtype], code.table.shape), code.table)
            )
        buffers = [*inputs, *results]
        if code.scratch_bytes:
            buffers.append(self.buffers.new_bytes(code.scratch_bytes))
        steps.append(CodeStep(code, instruction.name, buffers, len(inputs)))
        return result

    @staticmethod
    def _is_reinterpreted(instruction: Instruction) -> bool:
        """Whether a bitcast-convert changes the element width and hence is a copy of the same bytes."""
        old, new = instruction.operands[0].shape, instruction.shape
        widths = {old.element_type.bits, new.element_type.bits}
        return not old.is_dynamic and len(widths) == 2 and min(widths) >= 8

    def _kernel(self, instruction: Instruction, operands: list[BufferTree], steps: list[Step]) -> BufferTree:
        lowered = self._lowered(instruction)
        kernel = lowered.kernel
        result = self.buffers.new_value(instruction.shape)
        outputs = list(leaves(result))
        buffers: list[Buffer] = [operands[k] for k in lowered.operands] + outputs
        buffers += [self.buffers.new(_shape_of(kind)) for kind in kernel.buffers[len(buffers) :]]
        for output, source in lowered.copies:
            self._copy(buffers[output], buffers[source], steps)
        steps.append(KernelStep(kernel, buffers, instruction.name, tuple(output for output, _ in lowered.copies)))
        return result

    def _lowered(self, instruction: Instruction) -> Lowered:
        """Returns the scheduled kernel, shared by instructions of equal structure."""
        key = self.shared.codes.structures.of(instruction)
        lowered = self.shared.kernels.get(key)
        if lowered is None:
            lowered = self.shared.kernels[key] = lower(instruction)
            schedule(lowered.kernel, self.shared.codes.target)
        return lowered

    def _while(self, op: While, instruction: Instruction, initial: BufferTree, steps: list[Step]) -> BufferTree:
        state = self.buffers.new_value(instruction.shape)
        if isinstance(state, tuple):
            # Loop-invariant elements keep the buffers of the initial values.
            unchanged = loop_invariant_elements(op.body)
            state = tuple(i if k in unchanged else s for k, (s, i) in enumerate(zip(state, initial, strict=True)))
        filled = self._begin(instruction, state, initial, steps)
        condition: list[Step] = []
        body: list[Step] = []
        predicate = self._apply(op.condition, [state], condition)
        result = self._apply(op.body, [state], body)
        self._copy_in_parallel(state, result, body)
        steps += hoist_packing(condition, body, self.buffers.new_bytes)
        parallel = self._parallel_loop(instruction, state, body)
        steps.append(WhileStep(instruction.name, condition, predicate, body, len(self.program.loops), parallel, filled))
        name = f"%{instruction.name} ({instruction.location or 'a loop'})"
        self.program.loops.append(LoopInfo(name, trip_count(instruction) is not None))
        return state

    def _begin(self, loop: Instruction, state: BufferTree, initial: BufferTree, steps: list[Step]) -> Sequence[Buffer]:
        """Copies the initial values of a loop to its state, but for the arrays that it fills, which are returned."""
        filled = self.filled.get(loop)
        if not filled or not isinstance(state, tuple) or not isinstance(initial, tuple):
            self._copy(state, initial, steps)
            return ()
        for k, (element, value) in enumerate(zip(state, initial, strict=True)):
            if k not in filled:
                self._copy(element, value, steps)
        return buffers_of([state[k] for k in filled])

    def _parallel_loop(self, loop: Instruction, state: BufferTree, body: list[Step]) -> ParallelLoop | None:
        """Returns the parallel loop if its iterations are independent and keep the threads busy, else None."""
        threads = self.shared.codes.target.threads
        if threads == 1 or is_left_out(PARALLEL_LOOPS):
            return None
        with optional(PARALLEL_LOOPS):
            independent = independent_iterations(loop) if may_run_in_parallel(body) else None
        if independent is None or not fills_threads(independent[0].trips, threads):
            return None
        counted, arrays = independent
        written, tasks = [state[k] for k in arrays], min(threads, counted.trips)
        return ParallelLoop(state[counted.index], counted.start, counted.step, counted.trips, written, tasks)

    def _conditional(
        self, op: Conditional, instruction: Instruction, operands: list[BufferTree], steps: list[Step]
    ) -> BufferTree:
        result = self.buffers.new_value(instruction.shape)
        branches: list[list[Step]] = []
        for computation, operand in zip(op.branch_computations, operands[1:], strict=True):
            branch: list[Step] = []
            self._copy(result, self._apply(computation, [operand], branch), branch)
            branches.append(branch)
        steps.append(ConditionalStep(operands[0], branches))
        return result

    def _host(self, instruction: Instruction, operands: list[BufferTree], steps: list[Step]) -> BufferTree:
        result = self.buffers.new_value(instruction.shape)
        step = HostStep(instruction, operands, result, len(self.program.host_steps))
        self.program.host_steps.append(step)
        steps.append(step)
        return result

    def _copy(self, target: BufferTree, source: BufferTree, steps: list[Step]) -> None:
        for to, origin in zip(leaves(target), leaves(source), strict=True):
            if to is not origin and isinstance(to, Buffer) and isinstance(origin, Buffer):
                steps.append(self._copy_step(to, origin))

    def _copy_in_parallel(self, target: BufferTree, source: BufferTree, steps: list[Step]) -> None:
        """Appends a parallel copy: sources that are also targets are saved to temporaries first."""
        both = zip(leaves(target), leaves(source), strict=True)
        pairs = [(t, s) for t, s in both if t is not s and isinstance(t, Buffer) and isinstance(s, Buffer)]
        targets = {t for t, _ in pairs}
        saved: dict[Buffer, Buffer] = {}
        for _, source_leaf in pairs:
            if source_leaf in targets and source_leaf not in saved:
                shape = Shape.array(source_leaf.type, source_leaf.dimensions)
                saved[source_leaf] = self.buffers.new(shape)
                steps.append(self._copy_step(saved[source_leaf], source_leaf))
        for to, origin in pairs:
            steps.append(self._copy_step(to, saved.get(origin, origin)))

    def _copy_step(self, target: Buffer, source: Buffer) -> CopyStep:
        size, codes, kernels = target.byte_size, self.shared.codes, self.shared.copies
        if not codes.target.is_worth_threads(size * COPY_COST):
            return CopyStep(target, source)
        if size not in kernels:
            kernels[size] = copy_kernel(size)
            schedule(kernels[size], codes.target)
        return CopyStep(target, source, kernels[size])


def _shape_of(kind: BufferType) -> Shape:
    """Shape of a kernel's temporary; per-thread scratch has size 0 because the kernel allocates it."""
    return Shape.array(kind.type, (kind.size if kind.role == "temporary" else 0,))


def _is_native_shape(shape: Shape) -> bool:
    return not shape.is_dynamic and all(type.is_array or type is PrimitiveType.TOKEN for type in shape.leaf_types)


def loop_invariant_elements(body: Computation) -> set[int]:
    """Returns the indices of the state elements that a loop body returns unchanged."""
    if not isinstance(body.root.op, Tuple):
        return set()
    return {k for k, operand in enumerate(body.root.operands) if carried_index(operand, body) == k}
