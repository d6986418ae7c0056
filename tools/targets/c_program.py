"""A C program that reads the arguments of a library's function from a file, and writes the results to another."""

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
#include <time.h>
#ifdef __linux__
#include <sys/mman.h>
#endif
#include "{library}.h"
static void *buffer(long bytes, int start) {{ /* begins at a multiple of 64, plus `start`; ends where the block ends */
  void *block;
#ifdef _WIN32
  block = _aligned_malloc(bytes + start, 64);
#else
  int is_large = bytes >= 1 << 22;
  if (posix_memalign(&block, is_large ? 1 << 21 : 64, bytes + start)) block = NULL;
#endif
#ifdef __linux__
  if (is_large && block) madvise(block, bytes + start, MADV_HUGEPAGE);
#endif
  return block ? (char *)block + start : NULL;
}}
#ifdef _WIN32
#define free _aligned_free
#endif
static double now(void) {{
  struct timespec t;
  timespec_get(&t, TIME_UTC);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}}
#define CALL {call}
int main(int argc, char **argv) {{
  FILE *in = fopen(argv[1], "rb"), *out = fopen(argv[2], "wb");
  hloom_pool *pool = {pool};
  {body}
  if (argc > 3) {{
    double best = 1e30, end = now() + atof(argv[3]);
    for (long calls = 1; now() < end;) {{
      double start = now();
      for (long k = 0; k < calls; k++) CALL;
      double taken = now() - start;
      if (taken < 2e-4) calls *= 2;
      else if (taken / calls < best) best = taken / calls;
    }}
    printf("%.9g\\n", best);
  }}
  {end}
  return fclose(in) | fclose(out);
}}
"""


def main_program(library: Library, function: CFunction, threads: int, is_aligned: bool = False) -> str:
    """Returns a C program that calls a function once; unless `is_aligned`, arrays are aligned as little as they may be.

    With a third argument it then prints the best time of a call, in as many seconds.
    """
    lines = []
    starts = {"scratch": 8}
    for k, array in enumerate(function.arrays):
        # Arrays that begin at the same offset of a page compete for the same lines of caches.
        starts[array.name] = 64 * (1 + 17 * k) if is_aligned else 64 if array.is_aligned else 8
    for array in function.arrays:
        size = f"{array.count} * sizeof({array.c_type})"
        lines.append(f"{array.c_type} *{array.name} = buffer({size}, {starts[array.name]});")
    for array in function.inputs:
        lines.append(f"if (fread({array.name}, sizeof({array.c_type}), {array.count}, in) != {array.count}) return 2;")
    lines.append(f"void *scratch = buffer({function.scratch_bytes}, 8);")
    if function.takes_constants:
        lines.append(f'const void *constants = {library.name}_map_constants("{library.name}.constants");')
    lines.append("if (CALL) return 3;")
    for array in function.outputs:
        lines.append(f"fwrite({array.name}, sizeof({array.c_type}), {array.count}, out);")
    end = [f"free((char *){name} - {start});" for name, start in starts.items()]
    pool = f"hloom_pool_new({threads})" if threads > 1 else "NULL"
    call = f"{function.name}({', '.join(function.arguments)})"
    end += ["hloom_pool_free(pool);"] if library.target.has_threads else []
    body, ends = ("\n  ".join(each) for each in (lines, end))
    return MAIN.format(library=library.name, call=call, pool=pool, body=body, end=ends)


def compiler_of(library: Library, zig_target: str | None = None) -> list[str]:
    """Returns the C compiler for the library's target: the system's for this machine, else zig's."""
    if library.target.is_host and shutil.which("cc") and zig_target is None:
        return ["cc", "-O1", "-Wall", "-Werror"]
    static = ["-static"] if library.target.system == "linux" else []
    return [sys.executable, "-m", "ziglang", "cc", "-target", zig_target or library.target.zig, *static, "-O1"]


def compile_program(
    library: Library,
    folder: Path,
    threads: int = 1,
    compiler: Sequence[str] = (),
    is_aligned: bool = False,
    sources: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Writes a library, and compiles the C program of its first function and other sources to `main`."""
    library.write(folder)
    for name, text in {**sources, "main.c": main_program(library, library.functions[0], threads, is_aligned)}.items():
        (folder / name).write_text(text)
    libraries = ["-lm", "-lpthread"] if library.target.system == "linux" else []
    command = [*(compiler or compiler_of(library)), "main.c", *sources, *library.binaries, *libraries, "-o", "main"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)


def results_of(
    library: Library, arguments: Sequence[Array], folder: Path, emulator: Sequence[str] = (), seconds: float = 0
) -> tuple[list[Array], float]:
    """Runs the compiled program in a process of its own; returns the results, and the best time in some seconds."""
    (folder / "in").write_bytes(bytes_of(arguments))
    command = [*emulator, "./main", "in", "out", *([str(seconds)] if seconds else [])]
    done = subprocess.run(command, cwd=folder, check=True, timeout=300, capture_output=True, text=True)
    return arrays_of((folder / "out").read_bytes(), library.functions[0]), float(done.stdout) if seconds else 0.0


def bytes_of(arrays: Sequence[Array]) -> bytes:
    """Returns the content of arrays, one after another."""
    return b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)


def arrays_of(content: bytes, function: CFunction) -> list[Array]:
    """Returns the results of a function, from their content."""
    results, at = [], 0
    for array in function.outputs:
        size = array.type.byte_width * math.prod(array.sizes)
        results.append(np.frombuffer(content[at : at + size], array.type.dtype).reshape(array.sizes))
        at += size
    return results
