"""Cache of compiled programs on disk, keyed by the program's bytes and options: a hit skips reading the program.

An entry holds the program's interface (a module whose entry has the same parameters and results, but no body), the key
of its machine code in the compiler's cache, and the optimised module, which the framework may request. Programs that
several processes run are not cached here.
"""

from __future__ import annotations

from dataclasses import replace

from hloom.backends.cpu.compiler import CompiledModule, find_compiled, may_keep_programs
from hloom.backends.cpu.llvm.disk_cache import find_program, keep_program
from hloom.ir import Computation, Instruction, Module
from hloom.ops.operation import OPERATIONS
from hloom.proto import module_to_bytes
from hloom.proto.reader import read_module
from hloom.proto.schema import message_class
from hloom.runtime.serialization import DataFormat
from hloom.sharding import Sharding, ShardingType
from hloom.system.records import record

Shardings = tuple[list[Sharding], list[Sharding]]
"""Shardings of the parameters and of the results."""
DECLARATION = "hloom$elsewhere"
"""Target of the custom call that replaces the body of a program."""


@record
class CachedProgram:
    """A program's interface as the framework sees it, that on row-major arrays, and the key of its machine code."""

    module: Module
    shardings: Shardings | None
    in_memory: Module
    key: str

    @classmethod
    def of(cls, module: Module, shardings: Shardings | None, in_memory: Module, key: str) -> CachedProgram:
        """Builds the entry of a module; `in_memory` is the same module on row-major arrays."""
        declared = declaration(module)
        return cls(declared, shardings, declared if in_memory is module else declaration(in_memory), key)


@record
class _CacheEntry:
    """A `CachedProgram` in serialisable form, with modules as HloModuleProto."""

    module: bytes
    shardings: Shardings | None
    in_memory: bytes | None
    """The module on row-major arrays; None if equal to `module`."""
    key: str


_INTERFACE = DataFormat(_CacheEntry, Sharding, ShardingType)


def find_cached(fingerprint: str) -> tuple[CachedProgram, CompiledModule] | None:
    """The cached program of a fingerprint with its machine code; None if either is missing."""
    if not may_keep_programs():
        return None
    entry: _CacheEntry | None = find_program(f"{fingerprint} interface", _INTERFACE)
    compiled = find_compiled(entry.key) if entry is not None else None
    if entry is None or compiled is None:
        return None
    module = _read_module(entry.module)
    in_memory = module if entry.in_memory is None else _read_module(entry.in_memory)
    return CachedProgram(module, entry.shardings, in_memory, entry.key), compiled


def cache_program(fingerprint: str, program: CachedProgram) -> None:
    """Writes an entry to the cache."""
    in_memory = None if program.in_memory is program.module else module_to_bytes(program.in_memory)
    entry = _CacheEntry(module_to_bytes(program.module), program.shardings, in_memory, program.key)
    keep_program(f"{fingerprint} interface", entry, _INTERFACE)


def _read_module(content: bytes) -> Module:
    return read_module(message_class("HloModuleProto").FromString(content))


def declaration(module: Module) -> Module:
    """A module with the interface of another one, whose entry consists of a custom call."""
    entry = Computation(module.entry.name)
    parameters = [entry.add(Instruction(p.name, p.shape, p.op)) for p in module.entry.parameters]
    op = OPERATIONS["custom-call"](target_name=DECLARATION)
    entry.root = entry.add(Instruction("result", module.entry.result_shape, op, parameters))
    declared = replace(module, computations=[], entry_computation=None, stack_frames={}, extra_attributes={})
    declared.add(entry, entry=True)
    return declared
