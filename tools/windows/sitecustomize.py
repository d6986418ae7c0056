"""Gives Wine's C library the functions on complex numbers that NumPy and SciPy call and Wine 8 lacks.

Python imports this module when it starts. Each function that is only a stub is overwritten by a jump to a callback. A
`_Dcomplex` is passed and returned by address, a `_Fcomplex` in a register.
"""

from __future__ import annotations

import cmath
import ctypes
import re
import struct
from collections.abc import Callable
from typing import Any

ELEMENTARY = re.findall(r"\w+", "exp log sqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh")
PARTS: dict[str, Callable[[complex], float]] = {
    "real": lambda z: z.real,
    "imag": lambda z: z.imag,
    "abs": abs,
    "arg": cmath.phase,
}
STUB = bytes.fromhex("4883ec28488d0d")  # sub rsp, 40; lea rcx, the library's name ..
PAGE_EXECUTE_READWRITE = 0x40
ADDRESS, WORD = ctypes.c_void_p, ctypes.c_uint64
library: Any = ctypes.CDLL("ucrtbase")
kept = []
"""The callbacks, which live as long as the process."""


def replace(name: str, prototype: Any, function: Callable[..., Any]) -> None:
    """Replaces a function of the C library if it is a stub."""
    found = getattr(library, name, None)
    start = ctypes.cast(found, ADDRESS).value if found is not None else None
    if start is None or ctypes.string_at(start, len(STUB)) != STUB:
        return
    kept.append(prototype(function))
    target = ctypes.cast(kept[-1], ADDRESS).value or 0
    code = b"\x48\xb8" + target.to_bytes(8, "little") + b"\xff\xe0"  # mov rax, target; jmp rax
    kernel: Any = ctypes.CDLL("kernel32")
    kernel.VirtualProtect(ADDRESS(start), ADDRESS(len(code)), PAGE_EXECUTE_READWRITE, ctypes.byref(WORD()))
    ctypes.memmove(start, code, len(code))


def double_at(address: int) -> complex:
    return complex(*struct.unpack("<2d", ctypes.string_at(address, 16)))


def float_in(word: int) -> complex:
    return complex(*struct.unpack("<2f", word.to_bytes(8, "little")))


def computed(function: Callable[..., complex], *operands: complex) -> complex:
    """Applies a function; returns NaN where Python raises an error."""
    try:
        return function(*operands)
    except (ValueError, OverflowError, ZeroDivisionError):
        return complex(cmath.nan, cmath.nan)


def replace_complex(name: str, function: Callable[..., complex], count: int) -> None:
    """Replaces the functions of a name from `count` complex numbers to one."""

    def of_doubles(result: int, *operands: int) -> int:
        value = computed(function, *map(double_at, operands))
        ctypes.memmove(result, struct.pack("<2d", value.real, value.imag), 16)
        return result

    def of_floats(*operands: int) -> int:
        value = computed(function, *map(float_in, operands))
        parts = (ctypes.c_float(part).value for part in (value.real, value.imag))  # infinite if it is too large
        return int.from_bytes(struct.pack("<2f", *parts), "little")

    for suffix in ("", "l"):
        replace(f"c{name}{suffix}", ctypes.CFUNCTYPE(ADDRESS, *[ADDRESS] * (1 + count)), of_doubles)
    replace(f"c{name}f", ctypes.CFUNCTYPE(WORD, *[WORD] * count), of_floats)


for name in ELEMENTARY:
    replace_complex(name, getattr(cmath, name), 1)
replace_complex("pow", pow, 2)
for name, part in PARTS.items():
    for suffix in ("", "l"):
        double = ctypes.CFUNCTYPE(ctypes.c_double, ADDRESS)
        replace(f"c{name}{suffix}", double, lambda address, part=part: part(double_at(address)))
    replace(f"c{name}f", ctypes.CFUNCTYPE(ctypes.c_float, WORD), lambda word, part=part: part(float_in(word)))
