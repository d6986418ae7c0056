"""Programs that together have most of the functions that programs share: what `hloom warm` compiles."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from hloom.backends.cpu.elements.called_functions import MIN_CALLS

LENGTHS = 128, 64, 32, 24, 9, 25, 49, 80, 729, 100, 196, 256, 1280, 16, 512, 2048, 384, 1152, 896, 1600
"""Lengths of transforms with all small radices, as first and as last ones of one step, of two, and of rows."""
COLUMNS = 128, 64, 24, 9, 25, 49, 80, 36, 72, 120, 250, 288, 1024, 4096, 200, 576
"""Lengths of transforms along columns with all small radices, as first and as last ones."""
WIDTHS = 576, 500, 200, 64
"""Numbers of columns: whole vectors or not, of elements far apart in memory or close together."""
SORTED = "f32", "f64", "s32", "s64"
FACTORS = {"f32": "f32", "f64": "f64", "bf16": "bf16", "s8": "s32"}
"""Element types of products, with those of the results."""
PRODUCTS = (
    (512, 512, 512), (320, 320, 320), (500, 500, 500), (100, 100, 100), (64, 64, 64), (512, 512, 4096), (256, 256, 64),
    (128, 3072, 768), (16, 1024, 1024),
    *itertools.product((4, 16, 64, 200, 512), (64, 100, 1000, 1024), (64, 256, 1024)),
)  # fmt: skip
"""Rows, columns and terms of products, whose tiles have many heights and widths, and are whole or ragged."""
CONVOLUTIONS = (
    (32, 64, 64, 3), (16, 128, 128, 3), (28, 256, 512, 1), (224, 3, 64, 7), (28, 1, 32, 3), (224, 3, 96, 11),
)  # fmt: skip
"""Rows of an image, features before and after, and rows of the window."""
STRIDED = (56, 64, 128, 3), (28, 128, 256, 1)
"""Rows of an image, features before and after, and rows of the window, of convolutions that halve the rows."""
TRANSPOSED = (128, 64, 64, 4), (32, 256, 128, 2), (28, 128, 64, 3), (16, 64, 3, 4)
"""Rows of an image, features before and after, and rows of the window, of convolutions that double the rows."""

FUNCTIONS = "sine", "cosine", "tan", "tanh", "erf", "log", "logistic", "log-plus-one"
"""Functions of elements that kernels call if they apply them often, or that call one for large operands."""

WHOLE = "HloModule absolute  ENTRY e { x = f32[1000000] parameter(0)  ROOT y = f32[1000000] abs(x) }"
"""A program to compile whole, with the functions of the runtime that all programs call."""

TRANSFORMED = (
    ("64,64", "64"), ("64,512", "512"), ("64,1024", "1024"), ("33,30", "30"), ("64,64", "64,64"), ("65536", "65536"),
    ("1048576", "1048576"), ("4194304", "4194304"),
)  # fmt: skip
"""Sizes of arrays, with the lengths of their transforms."""


def usual_programs() -> Iterator[str]:
    """Yields programs as HLO text."""
    yield from _transforms("f32", "c64")
    yield from _transforms("f64", "c128")
    for type in SORTED:
        yield _sort(type, f"{type}[10000]", "keys")
        yield _sort(type, f"({type}[10000], s32[10000])", "keys, positions")
    for factor, result in FACTORS.items():
        for product in PRODUCTS:
            for terms in ((1, 0), (1, 1), (0, 0)):
                yield _dot(factor, result, product, terms)
    yield from _convolutions()
    for type in ("f32", "f64"):
        for function in FUNCTIONS:
            yield _chain(function, f"{type}[100000]")


def _transforms(real: str, complex: str) -> Iterator[str]:
    for n in LENGTHS:
        yield _fft("FFT", f"{complex}[64,{n}]", f"{complex}[64,{n}]", f"{n}")
    for kind in ("FFT", "IFFT"):
        for sizes, lengths in TRANSFORMED:
            yield _fft(kind, f"{complex}[{sizes}]", f"{complex}[{sizes}]", lengths)
        for n, width in itertools.product(COLUMNS, WIDTHS):
            yield _fft(kind, f"{complex}[{n},{width}]", f"{complex}[{n},{width}]", f"{n},{width}")
    for rows in (64, 33):
        yield _fft("RFFT", f"{real}[{rows},512]", f"{complex}[{rows},257]", "512")
        yield _fft("IRFFT", f"{complex}[{rows},257]", f"{real}[{rows},512]", "512")


def _convolutions() -> Iterator[str]:
    for labels in ("b01f", "bf01"):
        for convolution in CONVOLUTIONS:
            yield _convolution(*convolution, labels)
        for strided in STRIDED:
            yield _convolution(*strided, labels, stride=2)
    for transposed in TRANSPOSED:
        yield _convolution(*transposed, "b01f", scale=2)


def _chain(function: str, shape: str) -> str:
    """Returns a program that applies a function of elements as often as one that calls it."""
    applied = " ".join(f"x{k + 1} = {shape} {function}(x{k})" for k in range(MIN_CALLS))
    return f"HloModule chain  ENTRY e {{ x0 = {shape} parameter(0)  {applied}  ROOT y = {shape} negate(x{MIN_CALLS}) }}"


def _fft(kind: str, operand: str, result: str, lengths: str) -> str:
    return (
        f"HloModule fft  ENTRY e {{ x = {operand} parameter(0)"
        f"  ROOT y = {result} fft(x), fft_type={kind}, fft_length={{{lengths}}} }}"
    )


def _dot(factor: str, result: str, sizes: tuple[int, int, int], terms: tuple[int, int]) -> str:
    """Returns a product whose factors have their terms along these dimensions."""
    (m, n, k), (of_lhs, of_rhs) = sizes, terms
    lhs, rhs = (f"{m},{k}" if of_lhs else f"{k},{m}"), (f"{n},{k}" if of_rhs else f"{k},{n}")
    return (
        f"HloModule dot  ENTRY e {{ x = {factor}[{lhs}] parameter(0)  y = {factor}[{rhs}] parameter(1)  ROOT z ="
        f" {result}[{m},{n}] dot(x, y), lhs_contracting_dims={{{of_lhs}}}, rhs_contracting_dims={{{of_rhs}}} }}"
    )


def _convolution(n: int, before: int, after: int, window: int, labels: str, scale: int = 1, stride: int = 1) -> str:
    """Returns a convolution whose result has `scale` times the rows of the image, or one in `stride`."""
    sizes = (n, before), (n * scale // stride, after)
    image, result = (f"f32[8,{n},{n},{c}]" if labels == "b01f" else f"f32[8,{c},{n},{n}]" for n, c in sizes)
    pad = f"{(window + scale - 1) // 2}_{window // 2}"
    return (
        f"HloModule convolution  ENTRY e {{ x = {image} parameter(0)"
        f"  w = f32[{window},{window},{before},{after}] parameter(1)  ROOT y = {result} convolution(x, w),"
        f" window={{size={window}x{window} pad={pad}x{pad} lhs_dilate={scale}x{scale}"
        f" stride={stride}x{stride}}},"
        f" dim_labels={labels}_01io->{labels} }}"
    )


def _sort(type: str, result: str, operands: str) -> str:
    parameters = f"a = {type}[] parameter(0)  b = {type}[] parameter(1)"
    parameters += "  c = s32[] parameter(2)  d = s32[] parameter(3)" if "positions" in operands else ""
    return (
        f"HloModule sort  less {{ {parameters}  ROOT l = pred[] compare(a, b), direction=LT }}"
        f"  ENTRY e {{ keys = {type}[10000] parameter(0)  positions = s32[10000] iota(), iota_dimension=0"
        f"  ROOT y = {result} sort({operands}), dimensions={{0}}, to_apply=less }}"
    )
