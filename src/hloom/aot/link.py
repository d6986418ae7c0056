"""Links objects to libraries: by this machine's C compiler, or by zig, which knows all targets."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from hloom.aot.targets import BuildTarget
from hloom.errors import ArgumentError

MAX_SHARED_BYTES = 2**31
"""The largest memory of WebAssembly with workers, whose addresses browsers reserve."""


def static_library(objects: Mapping[str, bytes], target: BuildTarget) -> bytes:
    """Returns a static library of object files. Raises ArgumentError without a linker."""
    return _made([*_tool("ar", target), "rcs"], objects)


def shared_library(objects: Mapping[str, bytes], target: BuildTarget, name: str) -> bytes:
    """Returns a shared library of object files; `name` is without extension.

    Raises ArgumentError without a linker, and for targets that have no shared libraries.
    """
    if target.system == "none":
        raise ArgumentError(f"{target.name} has no shared libraries: emit objects or static")
    return compiled_library(objects, target, target.shared_name(name))


def compiled_library(files: Mapping[str, bytes], target: BuildTarget, name: str = "library") -> bytes:
    """Returns a shared library of object files and C sources. Raises ArgumentError without a compiler."""
    command = _tool("cc", target)
    machine = ["-target", target.zig] if "ziglang" in command else []
    # Stripped libraries for Windows need another build of zig's C library, which takes minutes.
    options = ["-shared", "-fPIC", "-fvisibility=hidden", "-O2", *([] if target.system == "windows" else ["-s"])]
    # Each library calls its own runtime, whatever else the process has loaded, and stays for the threads of its pools.
    options += ["-Wl,-Bsymbolic", "-Wl,-z,nodelete"] if target.system == "linux" else []
    libraries = [] if target.system == "windows" else ["-lm", "-lpthread", "-ldl"]
    return _made([*command, *machine, *options, "-o"], files, libraries, name)


def web_assembly(objects: Mapping[str, bytes], target: BuildTarget, functions: Sequence[str]) -> bytes:
    """Returns a WebAssembly file that exports functions. Raises ArgumentError for other targets or without zig."""
    if not target.is_wasm:
        raise ArgumentError(f"WebAssembly is for the target wasm32, not {target.name}")
    workers = ("hloom_web_pool", "hloom_web_worker", "__stack_pointer") if target.has_threads else ()
    exports = [f"-Wl,--export={name}" for name in ("__heap_base", *workers, *functions)]
    shared = ["-Wl,--import-memory", "-Wl,--shared-memory", f"-Wl,--max-memory={MAX_SHARED_BYTES}"]
    memory = [*shared, "-mcpu=generic+atomics+bulk_memory"] if target.has_threads else ["-Wl,--export-memory"]
    options = ["-nostartfiles", "-s", "-O2", "-Wl,--no-entry", *memory, *exports, "-o"]
    return _made([*_tool("cc", target), "-target", target.zig, *options], objects)


def initial_pages(wasm: bytes) -> int:
    """Returns the size in pages at which the shared memory starts that a WebAssembly file imports, from its import."""
    imported = b"\x03env\x06memory\x02\x03"
    pages, position = 0, wasm.index(imported) + len(imported)
    for k, byte in enumerate(wasm[position : position + 5]):
        pages |= (byte & 0x7F) << (7 * k)
        if byte < 0x80:
            break
    return pages


def _tool(name: str, target: BuildTarget) -> list[str]:
    """Returns the command of `cc` or `ar` for a target."""
    if target.is_host and shutil.which(name) is not None:
        return [name]
    if importlib.util.find_spec("ziglang") is None:
        raise ArgumentError(f"zig links libraries for {target.name}: pip install 'hloom[build]', or emit objects")
    return [sys.executable, "-m", "ziglang", name]


def _made(
    command: list[str], inputs: Mapping[str, bytes], libraries: Sequence[str] = (), name: str = "library"
) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        for file, content in inputs.items():
            (Path(folder) / file).write_bytes(content)
        done = subprocess.run([*command, name, *inputs, *libraries], cwd=folder, capture_output=True, text=True)
        if done.returncode:
            raise ArgumentError(f"the linker failed: {' '.join(command)}\n{done.stderr.strip()}")
        return (Path(folder) / name).read_bytes()
