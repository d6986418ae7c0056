"""Native Python on Windows: nothing of POSIX is left over, and it compiles for the JIT's triple there."""

from __future__ import annotations

import re

import pytest

from hloom.backends.cpu.llvm.cross import compiled
from hloom.backends.cpu.llvm.native import windows
from hloom.backends.cpu.llvm.native.translator import native_module
from hloom.backends.cpu.llvm.native.vocabulary import External
from hloom.backends.cpu.llvm.processor import generating_for, level_of_x86
from hloom.backends.cpu.runtime import dispatch, interrupts, memory_pool, thread_pool
from hloom.backends.cpu.runtime.call_table import run_calls

OF_WINDOWS = {each.name for each in vars(windows).values() if isinstance(each, External)}
MODULES = {
    "threads": [thread_pool.make_pool, thread_pool.parallel_for, thread_pool.end_workers, run_calls],
    "memory": [memory_pool.take, memory_pool.give, memory_pool.take_capsule, memory_pool.release_cached],
    "calls": [dispatch.call, interrupts.poll],
}


@pytest.mark.parametrize("name", MODULES)
def test_external_functions_are_those_of_windows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_pool, "fresh_large", memory_pool.fresh_plain)  # Windows has no advice on huge pages
    text = native_module(MODULES[name], "x86_64", windows.POSIX).text()
    external = {name for name in re.findall(r"^declare .*@([\w.]+)\(", text, re.MULTILINE) if "llvm." not in name}
    assert external <= OF_WINDOWS
    with generating_for(level_of_x86("x86-64-v3")):
        assert compiled(text, "x86_64-pc-windows-msvc-elf").startswith(b"\x7fELF")
