"""Attributes for each dimension of an array in HLO text: windows, dimension labels, padding, slices."""

from __future__ import annotations

import re

from hloom.ops.attributes import ConvolutionDimensionNumbers, PaddingDimension, SliceDimension, WindowDimension
from hloom.text.scanner import Scanner, braced

# Windows: {size=3x3 stride=2x2 pad=1_1x1_1 lhs_dilate=1x1 rhs_dilate=1x1 rhs_reversal=0x0}

_WINDOW_FIELDS = {
    "size": ("size",),
    "stride": ("stride",),
    "pad": ("padding_low", "padding_high"),
    "lhs_dilate": ("base_dilation",),
    "rhs_dilate": ("window_dilation",),
    "rhs_reversal": ("window_reversal",),
}
"""The fields of a WindowDimension that each list of a window holds."""
_WINDOW_ITEM = re.compile(r"(\w++)=([-\d_x]++)")


def scan_window(scanner: Scanner) -> tuple[WindowDimension, ...]:
    """Reads a window; raises ParseError for anything else."""
    scanner.expect("{")
    columns: dict[str, list[int]] = {}
    while not scanner.take("}"):
        start = scanner.pos
        match = scanner.match(_WINDOW_ITEM)
        fields = _WINDOW_FIELDS.get(match[1], ()) if match else ()
        if not match or any(field in columns for field in fields):
            scanner.fail("expected size=, stride=, pad=, lhs_dilate=, rhs_dilate= or rhs_reversal=, each once", start)
        try:
            columns |= zip(fields, _columns(match[2], len(fields)), strict=True)
        except ValueError:
            scanner.fail(f"cannot read the window's {match[1]}={match[2]}", start)
    count = len(columns.get("size", ()))
    if "window_reversal" in columns:
        # XLA ignores surplus entries, and uses 0 for missing ones.
        columns["window_reversal"] = [bool(v) for v in (columns["window_reversal"] + [0] * count)[:count]]
    if any(len(column) != count for column in columns.values()):
        scanner.fail("a window gives size=, and every list has an entry for each dimension", 0)
    rows = zip(*columns.values(), strict=True)
    return tuple(WindowDimension(**dict(zip(columns, row, strict=True))) for row in rows)


def _columns(text: str, width: int) -> list[list[int]]:
    """The columns of entries such as `1_1x0_2`, of `width` numbers each; raises ValueError for any others."""
    rows = [[_small_int(number) for number in entry.split("_")] for entry in text.split("x")]
    if not width or any(len(row) != width for row in rows):
        raise ValueError(text)
    return [[row[i] for row in rows] for i in range(width)]


def _small_int(text: str) -> int:
    value = int(text)
    if not -(2**62) < value < 2**62:
        raise ValueError(text)
    return value


def window_text(window: tuple[WindowDimension, ...]) -> str:
    """The text of a window, `{size=3x3 stride=2x2 pad=1_1x1_1}`; lists of defaults are omitted, except size."""
    default = WindowDimension()
    items = []
    for name, fields in _WINDOW_FIELDS.items() if window else ():
        if name == "size" or any(getattr(d, field) != getattr(default, field) for d in window for field in fields):
            values = ("_".join(str(int(getattr(d, field))) for field in fields) for d in window)
            items.append(f"{name}={'x'.join(values)}")
    return "{" + " ".join(items) + "}"


# Dimension labels: b01f_01io->b01f

_LABELS = re.compile(r"([\dbf?]++)_([\dio?]++)->([\dbf?]++)")


def scan_dim_labels(scanner: Scanner) -> ConvolutionDimensionNumbers:
    """Reads the dimension numbers of a convolution; raises ParseError for anything else."""
    match = scanner.match(_LABELS)
    if not match:
        scanner.fail("expected dimension labels like b01f_01io->b01f", 0)
    sides = []
    for side, letters in ((match[1], "bf"), (match[2], "oi"), (match[3], "bf")):
        digits = sorted(c for c in side if c.isdigit())
        known = side.replace("?", "")
        spatial = len(known) - 2
        if sorted(known) != sorted(letters + "".join(digits)) or digits != [str(d) for d in range(spatial)]:
            scanner.fail(
                f"{side!r} must have {letters[0]}, {letters[1]} and the digits 0 .. {spatial - 1}, once each", 0
            )
        sides.append((side.index(letters[0]), side.index(letters[1]), tuple(side.index(d) for d in digits)))
    (ib, if_, isp), (ko, ki, ksp), (ob, of, osp) = sides
    return ConvolutionDimensionNumbers(ib, if_, isp, ko, ki, ksp, ob, of, osp)


def dim_labels_text(n: ConvolutionDimensionNumbers) -> str:
    """The text of a convolution's dimension numbers, `b01f_01io->b01f`; `?` is a dimension that has no label."""

    def side(first: int, second: int, spatial: tuple[int, ...], letters: str) -> str:
        labels = ["?"] * (max(first, second, *spatial) + 1)
        labels[first], labels[second] = letters[0], letters[1]
        for i, d in enumerate(spatial):
            labels[d] = str(i)
        return "".join(labels)

    lhs = side(n.input_batch_dimension, n.input_feature_dimension, n.input_spatial_dimensions, "bf")
    rhs = side(n.kernel_output_feature_dimension, n.kernel_input_feature_dimension, n.kernel_spatial_dimensions, "oi")
    result = side(n.output_batch_dimension, n.output_feature_dimension, n.output_spatial_dimensions, "bf")
    return f"{lhs}_{rhs}->{result}"


_PADDING = re.compile(r"-?\d++(?:_-?\d++){1,2}(?:x-?\d++(?:_-?\d++){1,2})*+")


def scan_padding(scanner: Scanner) -> tuple[PaddingDimension, ...]:
    """Reads padding, `low_high_interior` for each dimension; raises ParseError for anything else."""
    if scanner.at_end():
        return ()
    match = scanner.match(_PADDING)
    if not match:
        scanner.fail("expected padding like 0_1x2_0_1 (low_high_interior)", 0)
    try:
        return tuple(PaddingDimension(*(_small_int(n) for n in entry.split("_"))) for entry in match[0].split("x"))
    except ValueError:
        scanner.fail("a padding number does not fit", 0)


def padding_text(padding: tuple[PaddingDimension, ...]) -> str:
    """The text of padding, without interior padding if there is none."""
    interior = any(p.interior_padding for p in padding)
    return "x".join(
        f"{p.edge_padding_low}_{p.edge_padding_high}" + (f"_{p.interior_padding}" if interior else "") for p in padding
    )


def scan_slice(scanner: Scanner) -> SliceDimension:
    """Reads `[start:limit:stride]`, of which the stride may be missing; raises ParseError for anything else."""
    scanner.expect("[")
    bounds = [scanner.integer()]
    while scanner.take(":"):
        bounds.append(scanner.integer())
    scanner.expect("]")
    if len(bounds) not in (2, 3):
        scanner.fail("expected [start:limit] or [start:limit:stride]")
    return SliceDimension(*bounds)


def slices_text(slices: tuple[SliceDimension, ...]) -> str:
    """The text of slices, `{[0:4], [1:9:2]}`."""
    return braced((f"[{s.start}:{s.limit}" + (f":{s.stride}]" if s.stride != 1 else "]") for s in slices), ", ")
