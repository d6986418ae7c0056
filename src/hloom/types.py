"""Element types: XLA's PrimitiveType with its text name, proto number, width and NumPy counterpart (SL-23)."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

if TYPE_CHECKING:
    from hloom.shape import Shape


class Kind(enum.Enum):
    """The class of an element type, by which rules constrain operands."""

    PRED = "predicate"
    SIGNED = "signed integer"
    UNSIGNED = "unsigned integer"
    FLOAT = "floating point"
    COMPLEX = "complex"
    OTHER = "no array"


INTEGERS = frozenset({Kind.SIGNED, Kind.UNSIGNED})
FLOATS = frozenset({Kind.FLOAT})
REALS = INTEGERS | FLOATS
FLOATS_COMPLEX = FLOATS | {Kind.COMPLEX}
NUMERIC = REALS | {Kind.COMPLEX}


class PrimitiveType(enum.Enum):
    """An element type. `value` is its number in XLA's proto, `str()` its name in HLO text.

    `bits` is the width of an element (8 for PRED), `dtype` the NumPy or ml_dtypes type, which only array types have.

    >>> hl.bf16, hl.bf16.bits, str(hl.bf16)
    (<PrimitiveType.BF16: 16>, 16, 'bf16')
    >>> hl.bf16[2, 3]
    Shape(bf16[2,3])
    """

    PRED = 1
    S2, S4, S8, S16, S32, S64 = 26, 21, 2, 3, 4, 5
    U2, U4, U8, U16, U32, U64 = 27, 22, 6, 7, 8, 9
    F16, BF16, F32, F64 = 10, 16, 11, 12
    F8E5M2, F8E4M3, F8E4M3FN, F8E4M3B11FNUZ = 19, 28, 20, 23
    F8E5M2FNUZ, F8E4M3FNUZ, F8E3M4, F8E8M0FNU = 24, 25, 29, 33
    F4E2M1FN = 32
    C64, C128 = 15, 18
    TUPLE, OPAQUE, TOKEN, BUFFER = 13, 14, 17, 34

    text: str
    kind: Kind
    bits: int
    dtype: np.dtype[Any]
    singleton: frozenset[PrimitiveType]
    """The set that holds this type alone."""
    is_array: bool
    """Whether arrays can have elements of this type."""
    is_integer: bool
    """Whether this is a signed or unsigned integer type; PRED is not."""
    is_signed: bool
    """Whether this is a signed integer type."""
    is_float: bool
    """Whether this is a floating-point type of any width."""
    is_complex: bool
    """Whether this is c64 or c128."""
    is_pred: bool
    """Whether this is PRED."""
    limits: tuple[int, int]
    """The lowest and the highest value of an integer type."""
    byte_width: int
    """The size of an unpacked element in memory, in bytes (SL-23)."""
    real: PrimitiveType
    """The type of the real part: f32 for c64, f64 for c128, else the type itself."""

    def __str__(self) -> str:
        return self.text

    __hash__ = object.__hash__

    def __getitem__(self, sizes: int | tuple[int, ...]) -> Shape:
        """The array shape of this element type: `f32[2, 3]`, `f32[4]`, and the scalar `f32[()]`."""
        from hloom.shape import Shape

        return Shape.array(self, (sizes,) if not isinstance(sizes, tuple) else sizes)

    @property
    def computation_type(self) -> PrimitiveType:
        """The type in which values are computed and accumulated: f32 for narrower floats, else the type itself."""
        return PrimitiveType.F32 if self.is_float and self.bits < 32 else self

    @property
    def unsigned(self) -> PrimitiveType:
        """The type of unsigned integers of this width, which c128 does not have."""
        return BY_NAME[f"u{self.bits}"]

    @property
    def mantissa_bits(self) -> int:
        """The bits of the mantissa of a floating-point type, without the leading one."""
        return int(ml_dtypes.finfo(self.dtype).nmant)

    @property
    def complex(self) -> PrimitiveType | None:
        """The complex type whose parts have this type; None if there is none."""
        return {PrimitiveType.F32: PrimitiveType.C64, PrimitiveType.F64: PrimitiveType.C128}.get(self)


_DTYPES: dict[str, Any] = {
    "pred": np.bool_,
    "s2": ml_dtypes.int2, "s4": ml_dtypes.int4, "s8": np.int8, "s16": np.int16, "s32": np.int32, "s64": np.int64,
    "u2": ml_dtypes.uint2, "u4": ml_dtypes.uint4, "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
    "f8e5m2": ml_dtypes.float8_e5m2, "f8e4m3": ml_dtypes.float8_e4m3, "f8e4m3fn": ml_dtypes.float8_e4m3fn,
    "f8e4m3b11fnuz": ml_dtypes.float8_e4m3b11fnuz, "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz, "f8e3m4": ml_dtypes.float8_e3m4, "f8e8m0fnu": ml_dtypes.float8_e8m0fnu,
    "f4e2m1fn": ml_dtypes.float4_e2m1fn,
    "c64": np.complex64, "c128": np.complex128,
}  # fmt: skip


def _kind_and_bits(name: str) -> tuple[Kind, int]:
    if name == "pred":
        return Kind.PRED, 8
    if name in ("tuple", "opaque", "token", "buffer"):
        return Kind.OTHER, 0
    if name == "bf16":
        return Kind.FLOAT, 16
    kind = {"s": Kind.SIGNED, "u": Kind.UNSIGNED, "f": Kind.FLOAT, "c": Kind.COMPLEX}[name[0]]
    digits = name[1:].partition("e")[0]
    return kind, int(digits)


BY_NAME: dict[str, PrimitiveType] = {}
BY_NUMBER: dict[int, PrimitiveType] = {}
BY_DTYPE: dict[np.dtype[Any], PrimitiveType] = {}

for _type in PrimitiveType:
    _type.text = _type.name.lower()
    _type.singleton = frozenset({_type})
    _type.kind, _type.bits = _kind_and_bits(_type.text)
    _type.is_array, _type.is_pred = _type.kind is not Kind.OTHER, _type.kind is Kind.PRED
    _type.is_signed, _type.is_integer = _type.kind is Kind.SIGNED, _type.kind in (Kind.SIGNED, Kind.UNSIGNED)
    _type.real = {"c64": PrimitiveType.F32, "c128": PrimitiveType.F64}.get(_type.text, _type)
    _type.is_float, _type.is_complex = _type.kind is Kind.FLOAT, _type.kind is Kind.COMPLEX
    if _type.is_integer:
        _half = 1 << _type.bits - 1
        _type.limits = (-_half, _half - 1) if _type.is_signed else (0, 2 * _half - 1)
    _type.byte_width = (_type.bits + 7) // 8
    BY_NAME[_type.text] = _type
    BY_NUMBER[_type.value] = _type
    if _type.is_array:
        _type.dtype = np.dtype(_DTYPES[_type.text])
        BY_DTYPE[_type.dtype] = _type
