"""Code for other machines than this process: position-independent, for a triple of LLVM."""

from __future__ import annotations

import enum
import functools

import llvmlite.binding as llvm

from hloom.backends.cpu.llvm.machine_code import add_passes, set_options
from hloom.backends.cpu.llvm.processor import processor
from hloom.system.forks import new_lock

_LOCK = new_lock()


class Form(enum.StrEnum):
    """Forms of code, by the extensions of their files: an object file, assembly, LLVM IR after LLVM's passes."""

    OBJECT = "o"
    ASSEMBLY = "s"
    LLVM = "ll"


@functools.cache
def _initialise() -> None:
    set_options()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def compiled(text: str, triple: str, form: Form = Form.OBJECT) -> bytes:
    """Returns the code of a module, given as text, for the current processor and a triple."""
    with _LOCK:
        _initialise()
        cpu = processor()
        # Programs without an operating system are linked for a fixed address.
        model = "static" if "-none-" in triple else "pic"
        # As in the JIT: with near addresses, LLVM keeps no vectors of equal constants in registers or on the stack, but
        # reads a scalar in each instruction, which takes up to a quarter longer.
        far = "large" if triple.startswith("x86_64") and "linux" in triple else "default"
        machine = llvm.Target.from_triple(triple).create_target_machine(
            cpu=cpu.name, features=cpu.features, opt=2, reloc=model, codemodel=far
        )
        builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
        passes = llvm.create_new_module_pass_manager()
        add_passes(passes)
        head = f'target datalayout = "{machine.target_data}"\ntarget triple = "{triple}"\n'
        with llvm.create_context() as context, llvm.parse_assembly(head + text, context) as parsed:
            passes.run(parsed, builder)
            match form:
                case Form.OBJECT:
                    return bytes(machine.emit_object(parsed))
                case Form.ASSEMBLY:
                    return str(machine.emit_assembly(parsed)).encode()
                case Form.LLVM:
                    return str(parsed).encode()
