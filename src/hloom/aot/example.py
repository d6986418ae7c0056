"""Programs that call a library: in C, with a Makefile, and in Python with ctypes and NumPy."""

from __future__ import annotations

from collections.abc import Sequence

from hloom.aot.interface import ArrayParameter, CFunction
from hloom.aot.targets import BuildTarget
from hloom.target import CACHE_LINE

SHOWN = 8
"""Elements of a result that examples print."""


def c_example(library: str, functions: Sequence[CFunction], target: BuildTarget) -> str:
    """Returns a C program that calls each function on arrays of ones in static memory, and prints its results."""
    calls = "\n".join(_c_call(library, function) for function in functions)
    new, free = ("hloom_pool_new(2)", "  hloom_pool_free(pool);\n") if target.has_threads else ("0", "")
    return f"""\
#include <stdio.h>
#include "{library}.h"

int main(void) {{
  hloom_pool *pool = {new};
{calls}{free}  return 0;
}}
"""


def _c_call(library: str, function: CFunction) -> str:
    lines = ["{"]
    for array in function.arrays:
        align = f"_Alignas({CACHE_LINE}) " if array.is_aligned else ""
        lines.append(f"  static {align}{array.c_type} {array.name}[{max(1, array.count)}];")
    for array in function.inputs:
        lines.append(f"  for (long i = 0; i < {array.count}; i++) {array.name}[i] = 1;")
    if function.takes_constants:
        lines.append(f'  const void *constants = {library}_map_constants("{library}.constants");')
    lines.append(f"  static char scratch[{function.scratch_macro} + 1];")
    lines.append(f"  if ({function.name}({', '.join(function.arguments)})) return 1;")
    for array in function.outputs:
        lines += _c_print(function, array)
    return "".join(f"  {line}\n" for line in [*lines, "}"])


def _c_print(function: CFunction, array: ArrayParameter) -> list[str]:
    shown = min(array.count, SHOWN)
    text, cast = ('"%g "', "(double)") if array.c_type in ("float", "double") else ('"%lld "', "(long long)")
    return [
        f'  printf("{function.name}: {array.name} {array.shape} = ");',
        f"  for (int i = 0; i < {shown}; i++) printf({text}, {cast}{array.name}[i]);",
        f'  printf("{"..." if array.count > shown else ""}\\n");',
    ]


def makefile(library: str, files: Sequence[str], target: BuildTarget) -> str:
    """Returns a Makefile that builds the C example from the library's files."""
    inputs = " ".join(["example.c", *files])
    libraries = " -lm -lpthread" if target.system in ("linux", "macos") else ""
    return f"CFLAGS = -O2\n\nexample: {inputs} {library}.h hloom.h\n\t$(CC) $(CFLAGS) {inputs}{libraries} -o $@\n"


def python_example(library: str, functions: Sequence[CFunction]) -> str:
    """Returns a Python program that calls the functions of a shared library with NumPy."""
    calls = "\n".join(map(_python_call, functions))
    has_constants = functions[0].takes_constants
    constants = f'constants = np.memmap(folder / "{library}.constants", np.uint8, "r")\n' if has_constants else ""
    return f"""\
import ctypes
from pathlib import Path

import numpy as np

folder = Path(__file__).parent
library = ctypes.CDLL(str(folder / "lib{library}.so"))
pool = ctypes.c_void_p()
if hasattr(library, "hloom_pool_new"):
    library.hloom_pool_new.restype = ctypes.c_void_p
    pool = ctypes.c_void_p(library.hloom_pool_new(2))
{constants}

def array(count, dtype):
    memory = np.zeros(count * np.dtype(dtype).itemsize + {CACHE_LINE}, np.uint8)
    start = -memory.ctypes.data % {CACHE_LINE}
    return memory[start : start + count * np.dtype(dtype).itemsize].view(dtype)


def address(array):
    return ctypes.c_void_p(array.ctypes.data)

{calls}
if pool:
    library.hloom_pool_free(pool)
"""


def _python_call(function: CFunction) -> str:
    lines = [f"{a.name} = array({a.count}, np.{_numpy_type(a)})  # {a.shape}" for a in function.arrays]
    lines += [f"{a.name}[:] = 1" for a in function.inputs]
    lines.append(f"scratch = np.empty({function.scratch_bytes}, np.uint8)")
    *memory, pool = function.arguments
    arguments = ", ".join([*(f"address({name})" for name in memory), pool])
    lines.append(f"assert library.{function.name}({arguments}) == 0")
    lines += [f'print("{function.name}: {a.name} {a.shape} =", {a.name}[:{SHOWN}])' for a in function.outputs]
    return "\n".join(lines)


def _numpy_type(array: ArrayParameter) -> str:
    return {"float": "float32", "double": "float64"}.get(array.c_type, array.c_type.removesuffix("_t"))
