"""Programs that together have most of the functions that programs share: what `hloom warm` compiles."""

from __future__ import annotations

from collections.abc import Iterator

LENGTHS = 128, 64, 32, 24, 9, 25, 49
"""Lengths of transforms with all small radices, as first and as last."""
SORTED = "f32", "f64", "s32", "s64"


def usual_programs() -> Iterator[str]:
    """Yields programs as HLO text."""
    for real, complex in (("f32", "c64"), ("f64", "c128")):
        for n in LENGTHS:
            yield _fft("FFT", f"{complex}[64,{n}]", f"{complex}[64,{n}]", f"{n}")
        for sizes, lengths in (("64,64", "64"), ("33,30", "30"), ("64,64", "64,64"), ("65536", "65536")):
            for kind in ("FFT", "IFFT"):
                yield _fft(kind, f"{complex}[{sizes}]", f"{complex}[{sizes}]", lengths)
        for rows in (64, 33):
            yield _fft("RFFT", f"{real}[{rows},512]", f"{complex}[{rows},257]", "512")
            yield _fft("IRFFT", f"{complex}[{rows},257]", f"{real}[{rows},512]", "512")
    for type in SORTED:
        yield _sort(type, f"{type}[10000]", "keys")
        yield _sort(type, f"({type}[10000], s32[10000])", "keys, positions")


def _fft(kind: str, operand: str, result: str, lengths: str) -> str:
    return (
        f"HloModule fft  ENTRY e {{ x = {operand} parameter(0)"
        f"  ROOT y = {result} fft(x), fft_type={kind}, fft_length={{{lengths}}} }}"
    )


def _sort(type: str, result: str, operands: str) -> str:
    parameters = f"a = {type}[] parameter(0)  b = {type}[] parameter(1)"
    parameters += "  c = s32[] parameter(2)  d = s32[] parameter(3)" if "positions" in operands else ""
    return (
        f"HloModule sort  less {{ {parameters}  ROOT l = pred[] compare(a, b), direction=LT }}"
        f"  ENTRY e {{ keys = {type}[10000] parameter(0)  positions = s32[10000] iota(), iota_dimension=0"
        f"  ROOT y = {result} sort({operands}), dimensions={{0}}, to_apply=less }}"
    )
