"""Object files for other machines than this process: position-independent code for a triple of LLVM."""

from __future__ import annotations

import functools
import threading

import llvmlite.binding as llvm

from hloom.backends.cpu.llvm.machine_code import add_passes
from hloom.backends.cpu.llvm.processor import processor
from hloom.lir import LirModule

_LOCK = threading.Lock()


@functools.cache
def _initialise() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def object_file(module: LirModule, triple: str) -> bytes:
    """Returns the object file of a module, for the current processor and a triple."""
    with _LOCK:
        _initialise()
        cpu = processor()
        machine = llvm.Target.from_triple(triple).create_target_machine(
            cpu=cpu.name, features=cpu.features, opt=2, reloc="pic", codemodel="default"
        )
        builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
        passes = llvm.create_new_module_pass_manager()
        add_passes(passes)
        text = module.text(cpu.pointer_bytes)
        head = f'target datalayout = "{machine.target_data}"\ntarget triple = "{triple}"\n'
        with llvm.create_context() as context, llvm.parse_assembly(head + text, context) as parsed:
            passes.run(parsed, builder)
            return bytes(machine.emit_object(parsed))
