"""Runs libraries: a C program reads the arguments from a file, calls a function, and writes the results to another."""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np

from hloom.aot import Library
from hloom.aot.interface import CFunction
from hloom.numerics import Array

MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include "{library}.h"
static void *buffer(long bytes, int start) {{ /* begins at a multiple of 64, plus `start`; ends where the block ends */
  void *block;
  return posix_memalign(&block, 64, bytes + start) ? NULL : (char *)block + start;
}}
int main(int argc, char **argv) {{
  FILE *in = fopen(argv[1], "rb"), *out = fopen(argv[2], "wb");
  hloom_pool *pool = {pool};
  {body}
  hloom_pool_free(pool);
  return fclose(in) | fclose(out);
}}
"""


def main_program(library: Library, function: CFunction, threads: int) -> str:
    """The C program that calls a function once; arrays are aligned as little as they may be."""
    lines, starts = [], {array.name: 64 if array.is_aligned else 8 for array in function.arrays} | {"scratch": 8}
    for array in function.arrays:
        size = f"{array.count} * sizeof({array.c_type})"
        lines.append(f"{array.c_type} *{array.name} = buffer({size}, {starts[array.name]});")
    for array in function.inputs:
        lines.append(f"if (fread({array.name}, sizeof({array.c_type}), {array.count}, in) != {array.count}) return 2;")
    lines.append(f"void *scratch = buffer({function.scratch_bytes}, 8);")
    if function.takes_constants:
        lines.append(f'const void *constants = {library.name}_map_constants("{library.name}.constants");')
    lines.append(f"if ({function.name}({', '.join(function.arguments)})) return 3;")
    for array in function.outputs:
        lines.append(f"fwrite({array.name}, sizeof({array.c_type}), {array.count}, out);")
    lines += [f"free((char *){name} - {start});" for name, start in starts.items()]
    pool = f"hloom_pool_new({threads})" if threads > 1 else "NULL"
    return MAIN.format(library=library.name, pool=pool, body="\n  ".join(lines))


def compiler_of(library: Library) -> list[str]:
    """The C compiler for the library's target: the system's for this machine, else zig's."""
    if library.target.is_host and shutil.which("cc"):
        return ["cc", "-O1", "-Wall", "-Werror"]
    return [sys.executable, "-m", "ziglang", "cc", "-target", library.target.zig, "-static", "-O1"]


def results_of(
    library: Library,
    arguments: Sequence[Array],
    folder: Path,
    threads: int = 1,
    emulator: Sequence[str] = (),
    sources: Mapping[str, str] = MappingProxyType({}),
) -> list[Array]:
    """The results of a library's first function on arguments, in a process of its own with other C sources."""
    library.write(folder)
    for name, text in sources.items():
        (folder / name).write_text(text)
    function = library.functions[0]
    (folder / "main.c").write_text(main_program(library, function, threads))
    (folder / "in").write_bytes(bytes_of(arguments))
    command = [*compiler_of(library), "main.c", *sources, *library.binaries, "-lm", "-lpthread", "-o", "main"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    subprocess.run([*emulator, "./main", "in", "out"], cwd=folder, check=True, timeout=300)
    return arrays_of((folder / "out").read_bytes(), function)


def bytes_of(arrays: Sequence[Array]) -> bytes:
    """The content of arrays, one after another."""
    return b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)


def arrays_of(content: bytes, function: CFunction) -> list[Array]:
    """The results of a function, from their content."""
    results, at = [], 0
    for array in function.outputs:
        size = array.type.byte_width * math.prod(array.sizes)
        results.append(np.frombuffer(content[at : at + size], array.type.dtype).reshape(array.sizes))
        at += size
    return results
