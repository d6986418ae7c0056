"""Programs that were compiled before, in this process or in another one: they run without being read again.

What is kept on disk of a program, by its bytes and options, is its interface (a module whose entry has the same
parameters and results, and nothing inside), where the compiler has put the machine code, and the optimised module as
the framework asks for it. Programs that meet others, or need the host, are read and compiled each time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hloom.backends.cpu.compiler import PROGRAM, CompiledModule, may_keep_programs
from hloom.backends.cpu.llvm.disk_cache import find_program, keep_program
from hloom.ir import Computation, Instruction, Module
from hloom.ops.operation import OPERATIONS
from hloom.proto import module_to_bytes
from hloom.proto.reader import read_module
from hloom.proto.schema import message_class
from hloom.runtime.serialization import DataFormat
from hloom.sharding import Sharding, ShardingType

Shardings = tuple[list[Sharding], list[Sharding]]
"""Of the parameters, and of the results."""
DECLARATION = "hloom$elsewhere"
"""The target of the custom call that stands for all that a program does."""


@dataclass(frozen=True)
class CachedProgram:
    """A program's interface as the framework sees it, the one on row-major arrays, and the key of its machine code."""

    module: Module
    shardings: Shardings | None
    in_memory: Module
    key: str

    @classmethod
    def of(cls, module: Module, shardings: Shardings | None, in_memory: Module, key: str) -> CachedProgram:
        declared = declaration(module)
        return cls(declared, shardings, declared if in_memory is module else declaration(in_memory), key)


@dataclass(frozen=True)
class _CacheEntry:
    """What is known as it lies on disk, with modules as HloModuleProto."""

    module: bytes
    shardings: Shardings | None
    in_memory: bytes | None
    """None where it is the module itself."""
    key: str


_INTERFACE = DataFormat(_CacheEntry, Sharding, ShardingType)


def find_cached(fingerprint: str) -> tuple[CachedProgram, CompiledModule] | None:
    """What is on disk for a program of this fingerprint."""
    if not may_keep_programs():
        return None
    entry: _CacheEntry | None = find_program(f"{fingerprint} interface", _INTERFACE)
    compiled: CompiledModule | None = find_program(entry.key, PROGRAM) if entry is not None else None
    if entry is None or compiled is None:
        return None
    module = _read_module(entry.module)
    in_memory = module if entry.in_memory is None else _read_module(entry.in_memory)
    return CachedProgram(module, entry.shardings, in_memory, entry.key), compiled


def cache_program(fingerprint: str, program: CachedProgram) -> None:
    in_memory = None if program.in_memory is program.module else module_to_bytes(program.in_memory)
    entry = _CacheEntry(module_to_bytes(program.module), program.shardings, in_memory, program.key)
    keep_program(f"{fingerprint} interface", entry, _INTERFACE)


def _read_module(content: bytes) -> Module:
    return read_module(message_class("HloModuleProto").FromString(content))


def declaration(module: Module) -> Module:
    """A module with the interface of another one, and an entry whose result comes from elsewhere."""
    entry = Computation(module.entry.name)
    parameters = [entry.add(Instruction(p.name, p.shape, p.op)) for p in module.entry.parameters]
    op = OPERATIONS["custom-call"](target_name=DECLARATION)
    entry.root = entry.add(Instruction("result", module.entry.result_shape, op, parameters))
    declared = replace(module, computations=[], entry_computation=None, stack_frames={}, extra_attributes={})
    declared.add(entry, entry=True)
    return declared
