"""Programs that call a library: in C, with a Makefile, and in Python with ctypes and NumPy."""

from __future__ import annotations

from collections.abc import Sequence

from hloom.aot.interface import ArrayParameter, CFunction

SHOWN = 8
"""Elements of a result that examples print."""


def c_example(library: str, functions: Sequence[CFunction]) -> str:
    """Returns a C program that calls each function on arrays of ones, and prints its results."""
    calls = "\n".join(_c_call(function) for function in functions)
    return f"""\
#include <stdio.h>
#include <stdlib.h>
#include "{library}.h"

int main(void) {{
  hloom_pool *pool = hloom_pool_new(2);
{calls}  hloom_pool_free(pool);
  return 0;
}}
"""


def _c_call(function: CFunction) -> str:
    lines = ["{"]
    for array in (*function.inputs, *function.outputs):
        lines.append(f"  {array.c_type} *{array.name} = calloc({max(1, array.count)}, sizeof *{array.name});")
    for array in function.inputs:
        lines.append(f"  for (long i = 0; i < {array.count}; i++) {array.name}[i] = 1;")
    lines.append(f"  void *scratch = malloc({function.name.upper()}_SCRATCH_BYTES);")
    names = ", ".join(array.name for array in (*function.inputs, *function.outputs))
    arguments = f"{names}, scratch, pool" if names else "scratch, pool"
    lines.append(f"  if ({function.name}({arguments})) return 1;")
    for array in function.outputs:
        lines += _c_print(function, array)
    frees = [*(array.name for array in (*function.inputs, *function.outputs)), "scratch"]
    lines += [f"  free({name});" for name in frees]
    return "".join(f"  {line}\n" for line in [*lines, "}"])


def _c_print(function: CFunction, array: ArrayParameter) -> list[str]:
    shown = min(array.count, SHOWN)
    text, cast = ('"%g "', "(double)") if array.c_type in ("float", "double") else ('"%lld "', "(long long)")
    return [
        f'  printf("{function.name}: {array.name} {array.shape} = ");',
        f"  for (int i = 0; i < {shown}; i++) printf({text}, {cast}{array.name}[i]);",
        f'  printf("{"..." if array.count > shown else ""}\\n");',
    ]


def makefile(library: str, files: Sequence[str]) -> str:
    """Returns a Makefile that builds the C example from the library's files."""
    inputs = " ".join(["example.c", *files])
    return f"CFLAGS = -O2\n\nexample: {inputs} {library}.h hloom.h\n\t$(CC) $(CFLAGS) {inputs} -lm -lpthread -o $@\n"


def python_example(library: str, functions: Sequence[CFunction]) -> str:
    """Returns a Python program that calls the functions of a shared library with NumPy."""
    calls = "\n".join(_python_call(function) for function in functions)
    return f"""\
import ctypes
from pathlib import Path

import numpy as np

library = ctypes.CDLL(str(Path(__file__).parent / "lib{library}.so"))
library.hloom_pool_new.restype = ctypes.c_void_p
pool = ctypes.c_void_p(library.hloom_pool_new(2))


def address(array):
    return ctypes.c_void_p(array.ctypes.data)

{calls}
library.hloom_pool_free(pool)
"""


def _python_call(function: CFunction) -> str:
    arrays = [*function.inputs, *function.outputs]
    lines = [f"{a.name} = np.ones({a.count}, np.{_numpy_type(a)})  # {a.shape}" for a in arrays]
    lines.append(f"scratch = np.empty({function.scratch_bytes}, np.uint8)")
    arguments = ", ".join([*(f"address({array.name})" for array in arrays), "address(scratch)", "pool"])
    lines.append(f"assert library.{function.name}({arguments}) == 0")
    lines += [f'print("{function.name}: {a.name} {a.shape} =", {a.name}[:{SHOWN}])' for a in function.outputs]
    return "\n".join(lines)


def _numpy_type(array: ArrayParameter) -> str:
    return {"float": "float32", "double": "float64"}.get(array.c_type, array.c_type.removesuffix("_t"))
