"""The code of a program's kernels: loop nests, LLVM IR and assembly, with the instruction of each line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hloom.backends.cpu.codegen.emitter import ProgramEmitter
from hloom.backends.cpu.codegen.merge_functions import MERGED
from hloom.backends.cpu.codegen.modules import Unit, shared_units
from hloom.backends.cpu.llvm.debug_locations import (
    assembly_functions,
    ir_functions,
    with_debug_locations,
)
from hloom.backends.cpu.llvm.machine_code import assembly
from hloom.backends.cpu.llvm.processor import processor
from hloom.backends.cpu.program.buffer_assignment import assign_buffers
from hloom.backends.cpu.program.program import CodeStep, KernelStep, Program, all_steps
from hloom.explorer.graph import Json
from hloom.explorer.outline import outline
from hloom.lir import LirModule

INLINED = "; inlined into its callers: its lines there"


def kernels_of(program: Program) -> list[Json]:
    """Code of each distinct kernel, with the instructions that it computes."""
    emitter = ProgramEmitter(
        program, assign_buffers(program, donate=False), processor().vector_bytes, has_locations=True
    )
    code = _Code(emitter.all_modules())
    found: dict[int, Json] = {}
    called = (step for subroutine in program.subroutines for step in subroutine.program.steps)
    for step in all_steps([*program.steps, *called]):
        if isinstance(step, KernelStep):
            names = [f.function.name for key, f in emitter.functions.written.items() if key[0] == id(step.kernel)]
            each = found.setdefault(id(step.kernel), code.shown("nest", names, step.kernel.to_text()))
        elif isinstance(step, CodeStep):
            kernel = step.code.entry.partition(".")[0]
            shared = [unit.functions[0] for unit in shared_units([Unit(step.code.functions)])]
            names = [name for name in code.ir if name == kernel or name.startswith(f"{kernel}.")]
            names += [function.name for function in shared]
            loops = outline([*shared, *step.code.functions])
            each = found.setdefault(id(step.code), code.shown(kernel.rstrip("0123456789"), names, loops))
        else:
            continue
        each["instructions"].append(step.name)
    return list(found.values())


@dataclass
class _Code:
    """The functions of a program's modules."""

    modules: Sequence[LirModule]
    ir: dict[str, str] = field(init=False, default_factory=dict)
    machine: dict[str, str] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for module in self.modules:
            self.ir |= ir_functions(module)
            located, names = with_debug_locations(module)
            self.machine |= assembly_functions(assembly(located), names)

    def shown(self, kind: str, names: list[str], nest: str = "") -> Json:
        """Data of a kernel that consists of functions, their tasks and the merged functions that they call."""
        functions = (function for module in self.modules for function in module.functions if function.name in names)
        merged = [name for function in functions for name in function.needs if name.endswith(MERGED)]
        shown = dict.fromkeys([*names, *(f"{name}.task" for name in names), *merged])
        machine = [self.machine[name] for name in shown if name in self.machine]
        return {
            "kind": kind,
            "instructions": [],
            "nest": nest,
            "llvm": "\n\n".join(self.ir[name] for name in shown if name in self.ir),
            "assembly": "\n\n".join(machine or [self._inlined(names)]),
        }

    def _inlined(self, names: list[str]) -> str:
        """Lines of other functions whose instructions belong to these functions."""
        functions = [function for module in self.modules for function in module.functions if function.name in names]
        own = {name for function in functions for name in function.locations.values()}
        lines = (line for text in self.machine.values() for line in text.split("\n"))
        return "\n".join([INLINED, *(line for line in lines if line.rpartition(" # %")[2] in own)])
