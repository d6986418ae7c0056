"""The C interface of a library: functions with typed arrays."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from hloom.aot.entry import is_aligned_result, refuses_sizes
from hloom.backends.cpu.program.program import Program, buffers_of
from hloom.runtime.custom_calls.registry import custom_call_of
from hloom.system.records import record
from hloom.target import CACHE_LINE
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
_TAKEN = frozenset(f"{_C_WORDS} {_WORDS_OF_CPP} {_LIBM} scratch pool constants main free malloc".split())
"""Names that parameters cannot have in C and C++."""


@record
class ArrayParameter:
    """Array parameter of a function: its name in C, element type and sizes."""

    name: str
    type: PrimitiveType
    sizes: tuple[int, ...]
    is_aligned: bool = False
    """Whether it must be aligned to a cache line."""

    @property
    def shape(self) -> str:
        """The shape as HLO text."""
        return self.with_sizes(map(str, self.sizes))

    def with_sizes(self, sizes: Iterable[str]) -> str:
        """Returns the shape as text with other sizes."""
        return f"{self.type}[{','.join(sizes)}]"

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


@record
class CFunction:
    """A module as a C function: its arrays, and the size of the memory that a call needs in bytes."""

    name: str
    inputs: Sequence[ArrayParameter]
    outputs: Sequence[ArrayParameter]
    scratch_bytes: int
    externs: Mapping[str, str] = field(default_factory=dict)
    """Functions that the program provides, for custom calls: name, and the instruction as a comment."""
    takes_constants: bool = False
    """Whether callers pass the memory of the library's constants."""

    @property
    def arrays(self) -> list[ArrayParameter]:
        """Inputs and outputs, in the order of the function's parameters."""
        return [*self.inputs, *self.outputs]

    @property
    def arguments(self) -> list[str]:
        """Names of all parameters."""
        names = [array.name for array in self.arrays]
        return [*names, *(["constants"] if self.takes_constants else []), "scratch", "pool"]

    @property
    def scratch_macro(self) -> str:
        """The macro for the size of the memory that a call needs."""
        return f"{self.name.upper()}_SCRATCH_BYTES"

    @property
    def checksum(self) -> str:
        """Changes with the types and sizes of arrays, and with the version of the interface."""
        arrays = [[array.shape for array in arrays] for arrays in (self.inputs, self.outputs)]
        return hashlib.sha256(f"{VERSION} {self.name} {arrays}".encode()).hexdigest()[:8]

    def declaration(self) -> str:
        """Returns the declaration in C."""
        return declaration(self, self.checksum, self.parameters())

    def parameters(self, shapes: Sequence[str] | None = None) -> list[tuple[str, str]]:
        """Returns the declarations of the parameters in C, and comments; `shapes` is shown instead of the arrays'."""
        shapes = shapes or [array.shape for array in self.arrays]
        inputs = len(self.inputs)
        lines = [
            (f"{'const ' if k < inputs else ''}{a.c_type} *{a.name}", f"{shape}{_notes(a, k >= inputs)}")
            for k, (a, shape) in enumerate(zip(self.arrays, shapes, strict=True))
        ]
        constants = [("const void *constants", "the content of the file of constants, aligned to 64 bytes")]
        return [
            *lines,
            *(constants if self.takes_constants else []),
            ("void *scratch", f"{self.scratch_macro} bytes, or NULL for 0 bytes"),
            ("hloom_pool *pool", "NULL: this thread alone"),
        ]


def _notes(array: ArrayParameter, is_output: bool) -> str:
    aligned = f", aligned to {CACHE_LINE} bytes" if array.is_aligned else ""
    return f"{', written' if is_output else ''}{aligned}"


def declaration(function: CFunction, checksum: str, parameters: Sequence[tuple[str, str]]) -> str:
    """Returns the declaration of a function with parameters in C."""
    *lines, (last, comment) = parameters
    name = function.name
    calls = function.externs.items()
    externs = [f"/* {text} */\nextern void {call}(void *out, const void **in);" for call, text in calls]
    return "\n".join(
        [
            *externs,
            f"#define {function.scratch_macro} {function.scratch_bytes}",
            f"#define {name.upper()}_CHECKSUM 0x{checksum}u",
            f"int {name}(",
            *(f"    {line}, /* {text} */" for line, text in lines),
            f"    {last} /* {comment} */);",
        ]
    )


def c_function(
    name: str, parameters: Sequence[str], program: Program, scratch_bytes: int, takes_constants: bool
) -> CFunction:
    """Returns the C function of a program; inputs have the names of the module's parameters."""
    names, buffers = [], []
    for parameter, tree in zip(parameters, program.parameters, strict=True):
        leaves = buffers_of([tree])
        names += [parameter if len(leaves) == 1 else f"{parameter}_{k}" for k in range(len(leaves))]
        buffers += leaves
    outputs = program.of_kind("output")
    results = ["result" if len(outputs) == 1 else f"result{k}" for k in range(len(outputs))]
    arrays = [
        ArrayParameter(name, buffer.type, buffer.dimensions, is_aligned_result(buffer))
        for name, buffer in zip(unique_names([*names, *results]), [*buffers, *outputs], strict=True)
    ]
    called = [step.start.instruction for step in program.host_steps if not refuses_sizes(step.start)]
    calls = {custom_call_of(each).target_name: repr(each) for each in called}
    return CFunction(name, arrays[: len(names)], arrays[len(names) :], scratch_bytes, calls, takes_constants)


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
