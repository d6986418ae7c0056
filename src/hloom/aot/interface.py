"""The C interface of a library: functions with typed arrays, and its headers."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hloom.aot.targets import BuildTarget
from hloom.backends.cpu.program.program import Program, buffers_of
from hloom.runtime.custom_calls.registry import custom_call_of
from hloom.types import PrimitiveType

VERSION = 1
"""Version of the C interface."""
_C_WORDS = """
auto break case char const continue default do double else enum extern float for goto if inline int long register
restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
"""
_WORDS_OF_CPP = (
    "bool class delete explicit export false friend new operator private public template this throw true try"
)
_LIBM = """
acos asin atan cbrt ceil cos cosh erf exp exp2 expm1 fabs floor fma fmax fmin fmod log log10 log1p log2 pow rint round
sin sinh sqrt tan tanh trunc
"""
_TAKEN = frozenset(f"{_C_WORDS} {_WORDS_OF_CPP} {_LIBM} scratch pool main free malloc".split())
"""Names that parameters cannot have in C and C++."""


@dataclass(frozen=True)
class ArrayParameter:
    """Array parameter of a function: its name in C, element type and sizes."""

    name: str
    type: PrimitiveType
    sizes: tuple[int, ...]

    @property
    def shape(self) -> str:
        """The shape as HLO text."""
        return f"{self.type}[{','.join(map(str, self.sizes))}]"

    @property
    def c_type(self) -> str:
        """The type of an element in C; complex numbers are pairs of elements, and 16- and 8-bit floats are bits."""
        type = self.type
        if type.is_pred:
            return "uint8_t"
        if type.is_integer:
            return f"{'' if type.is_signed else 'u'}int{8 * type.byte_width}_t"
        width = type.byte_width // (2 if type.is_complex else 1)
        return {8: "double", 4: "float", 2: "uint16_t", 1: "uint8_t"}[width]

    @property
    def count(self) -> int:
        """Number of elements of the C type."""
        return math.prod(self.sizes) * (2 if self.type.is_complex else 1)


@dataclass(frozen=True)
class CFunction:
    """A module as a C function: its arrays, and the size of the memory that a call needs in bytes."""

    name: str
    inputs: Sequence[ArrayParameter]
    outputs: Sequence[ArrayParameter]
    scratch_bytes: int
    externs: Mapping[str, str] = field(default_factory=dict)
    """Functions that the program provides, for custom calls: name, and the instruction as a comment."""

    @property
    def checksum(self) -> str:
        """Changes with the types and sizes of arrays, and with the version of the interface."""
        arrays = [[array.shape for array in arrays] for arrays in (self.inputs, self.outputs)]
        return hashlib.sha256(f"{VERSION} {self.name} {arrays}".encode()).hexdigest()[:8]

    def declaration(self) -> str:
        """Returns the declaration in C, with comments."""
        lines = [f"    const {a.c_type} *{a.name}, /* {a.shape} */" for a in self.inputs]
        lines += [f"    {a.c_type} *{a.name}, /* {a.shape}, written */" for a in self.outputs]
        size = f"{self.name.upper()}_SCRATCH_BYTES"
        externs = [
            f"/* {text} */\nextern void {name}(void *out, const void **in);" for name, text in self.externs.items()
        ]
        return "\n".join(
            [
                *externs,
                f"#define {size} {self.scratch_bytes}",
                f"#define {self.name.upper()}_CHECKSUM 0x{self.checksum}u",
                f"int {self.name}(",
                *lines,
                f"    void *scratch, /* {size} bytes, or NULL for 0 bytes */",
                "    hloom_pool *pool /* NULL: this thread alone */);",
            ]
        )


def c_function(name: str, program: Program, scratch_bytes: int) -> CFunction:
    """Returns the C function of a program; inputs have the names of the module's parameters."""
    names, buffers = [], []
    for parameter, tree in zip(program.module.entry.parameters, program.parameters, strict=True):
        leaves = buffers_of([tree])
        names += [parameter.name if len(leaves) == 1 else f"{parameter.name}_{k}" for k in range(len(leaves))]
        buffers += leaves
    outputs = program.of_kind("output")
    results = ["result" if len(outputs) == 1 else f"result{k}" for k in range(len(outputs))]
    arrays = [
        ArrayParameter(name, buffer.type, buffer.dimensions)
        for name, buffer in zip(unique_names([*names, *results]), [*buffers, *outputs], strict=True)
    ]
    calls = {custom_call_of(s.start.instruction).target_name: repr(s.start.instruction) for s in program.host_steps}
    return CFunction(name, arrays[: len(names)], arrays[len(names) :], scratch_bytes, calls)


def unique_names(names: Iterable[str]) -> list[str]:
    """Returns identifiers of C for names, all different."""
    taken = set(_TAKEN)
    made = []
    for name in names:
        word = re.sub(r"\W", "_", name, flags=re.ASCII)
        word = f"_{word}" if not word or word[0].isdigit() else word
        free = next(each for k in range(len(taken) + 1) if (each := f"{word}_{k}" if k else word) not in taken)
        taken.add(free)
        made.append(free)
    return made


RUNTIME_HEADER = f"""\
/* The runtime of libraries that hloom builds. */
#ifndef HLOOM_H
#define HLOOM_H
#include <stdint.h>
#define HLOOM_INTERFACE {VERSION}
#ifdef __cplusplus
extern "C" {{
#endif

/* Threads that share the work of a call. A pool serves one call at a time; others meanwhile run on their own thread. */
typedef struct hloom_pool hloom_pool;

/* Returns a pool of some threads, the caller's among them; NULL without memory. Threads start at the first call. */
hloom_pool *hloom_pool_new(int threads);

/* Ends the threads of a pool that no call uses, and frees it. */
void hloom_pool_free(hloom_pool *pool);

#ifdef __cplusplus
}}
#endif
#endif
"""


def header(library: str, functions: Sequence[CFunction], target: BuildTarget) -> str:
    """Returns the header of a library."""
    guard = f"{library.upper()}_H"
    declarations = "\n\n".join(function.declaration() for function in functions)
    return f"""\
/* {library}: built by hloom for {target.name}.

   Functions return 0, or 1 if a pointer is NULL that must not be. Arrays are row-major, and results must not overlap
   other arrays. Calls are re-entrant if each has its own scratch memory, of any alignment. pred is 0 or 1; 4-bit
   elements take a byte each; complex numbers are pairs of a real and an imaginary part; f16, bf16 and f8 are bits.
   Functions of custom calls, which are declared `extern`, get the address of the result, or of an array with those of
   several results, and an array with the addresses of the operands. */
#ifndef {guard}
#define {guard}
#include "hloom.h"
#ifdef __cplusplus
extern "C" {{
#endif

{_support(library, target)}{declarations}

#ifdef __cplusplus
}}
#endif
#endif
"""


def _support(library: str, target: BuildTarget) -> str:
    """Returns the C function that tells whether a processor can run the library; none but for x86-64."""
    if target.processor.architecture != "x86_64":
        return ""
    feature = {64: "avx512f", 32: "avx2", 16: "sse4.2"}[target.processor.vector_bytes]
    return f"""\
#ifdef __GNUC__
/* Whether this processor has the vector instructions that the functions use. */
static inline int {library}_is_supported(void) {{ return __builtin_cpu_supports("{feature}") != 0; }}
#endif

"""
