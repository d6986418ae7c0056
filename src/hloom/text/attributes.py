"""Readers and writers of HLO text for each kind of attribute, after XLA's HLO parser (hlo_parser.cc) and printer.

A reader takes a Scanner over the text of the value only, and raises ParseError; a writer returns the text. `read`
caches values by kind and text, since modules repeat a few attribute texts many times.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from hloom.errors import ArgumentError, HloomError
from hloom.ops import kinds
from hloom.ops.attributes import (
    AnyReplicaGroups,
    AxisRef,
    ConvolutionDimensionNumbers,
    Domain,
    IotaReplicaGroups,
    MeshReplicaGroups,
    OutputOperandAlias,
    PaddingDimension,
    Precision,
    ReplicaGroups,
    ResultAccuracy,
    SliceDimension,
    WindowDimension,
)
from hloom.ops.kinds import AttributeKind, EnumKind
from hloom.text.scanner import STRING, Scanner, quote, scan_list, unquote
from hloom.text.shapes import scan_shape
from hloom.text.sharding import iota_text, scan_iota, scan_sharding, sharding_text

Reader = Callable[[Scanner], Any]
Writer = Callable[[Any], str]

_WORD = re.compile(r"[^\s,{}()]++")
_NUMBER = re.compile(r"[-+]?(?:\d++\.?\d*+(?:[eE][-+]?\d++)?|\.\d++(?:[eE][-+]?\d++)?|inf|nan)")


def read(kind: AttributeKind, text: str, full_text: str, base: int) -> Any:
    """Reads the value of an attribute of a kind.

    `text` begins at offset `base` of `full_text`, to which positions of errors refer. Raises ParseError for malformed
    text.
    """
    if len(text) < 200:
        try:
            return _cached(kind, text)
        except HloomError:
            pass
    return _read(kind, Scanner(text, full_text, base))


def _read(kind: AttributeKind, scanner: Scanner) -> Any:
    value = _enum(scanner, kind) if isinstance(kind, EnumKind) else TABLE[kind][0](scanner)
    if not scanner.at_end():
        scanner.fail(f"expected {kind.description}, got {scanner.preview()}")
    return value


@functools.lru_cache(maxsize=65536)
def _cached(kind: AttributeKind, text: str) -> Any:
    return _read(kind, Scanner(text))


def write(kind: AttributeKind, value: Any) -> str:
    """The text of a value of a kind."""
    if isinstance(kind, EnumKind):
        return str(value.value)
    return TABLE[kind][1](value)


def _braced(values: Any) -> str:
    return "{" + ",".join(map(str, values)) + "}"


def _enum(scanner: Scanner, kind: EnumKind) -> Any:
    match = scanner.match(_WORD)
    for member in kind.enumeration:
        if match and member.value == match[0]:
            return member
    scanner.fail(f"expected {kind.description}", 0)


def _bool(scanner: Scanner) -> bool:
    match = scanner.match(_WORD)
    if not match or match[0] not in ("true", "false", "1", "0"):
        scanner.fail("expected true or false", 0)
    return match[0] in ("true", "1")


def _float(scanner: Scanner) -> float:
    match = scanner.expect_match(_NUMBER, "a number")
    return float(match[0])


def _float_text(value: Any) -> str:
    text = str(value)
    return text[:-2] if text.endswith(".0") else text


def _string(scanner: Scanner) -> str:
    match = scanner.expect_match(STRING, "a quoted string")
    return unquote(match[0])


def _word(scanner: Scanner) -> str:
    match = scanner.expect_match(_WORD, "a word")
    return match[0]


def _ints(scanner: Scanner) -> tuple[int, ...]:
    return tuple(scan_list(scanner, Scanner.integer))


def _dimension(scanner: Scanner) -> int:
    start = scanner.pos
    values = _ints(scanner)
    if len(values) != 1:
        scanner.fail(f"expected one dimension number in braces, got {len(values)}", start)
    return values[0]


# {mode=highest} or {tolerance={atol=0,rtol=0.5,ulps=2}}


def _result_accuracy(scanner: Scanner) -> ResultAccuracy:
    scanner.expect("{")
    if scanner.take("mode="):
        mode = _word(scanner).lower()
        if mode not in ("default", "highest"):
            scanner.fail(f"expected mode=default or mode=highest, got {mode!r}", 0)
        scanner.expect("}")
        return ResultAccuracy(mode)
    scanner.expect("tolerance=", "or mode=")
    entries = dict(scan_list(scanner, _tolerance_entry))
    scanner.expect("}")
    return ResultAccuracy(
        atol=entries.get("atol", 0.0), rtol=entries.get("rtol", 0.0), ulps=int(entries.get("ulps", 0))
    )


def _tolerance_entry(scanner: Scanner) -> tuple[str, float]:
    name = scanner.name("atol, rtol or ulps")
    if name not in ("atol", "rtol", "ulps"):
        scanner.fail(f"expected atol, rtol or ulps, got {name!r}")
    scanner.expect("=")
    return name, scanner.integer() if name == "ulps" else _float(scanner)


def _result_accuracy_text(value: ResultAccuracy) -> str:
    if not value.has_tolerance:
        return f"{{mode={value.mode}}}"
    return f"{{tolerance={{atol={_float_text(value.atol)},rtol={_float_text(value.rtol)},ulps={value.ulps}}}}}"


def _domain(scanner: Scanner) -> Domain:
    scanner.expect("{")
    scanner.expect("kind=")
    kind = _string(scanner)
    scanner.expect(",")
    scanner.expect("entry=")
    entry = scan_sharding(scanner)
    scanner.expect(",")
    scanner.expect("exit=")
    exit_ = scan_sharding(scanner)
    scanner.expect("}")
    return Domain(kind, entry, exit_)


def _domain_text(value: Domain) -> str:
    return f"{{kind={quote(value.kind)}, entry={sharding_text(value.entry)}, exit={sharding_text(value.exit)}}}"


# Windows: {size=3x3 stride=2x2 pad=1_1x1_1 lhs_dilate=1x1 rhs_dilate=1x1 rhs_reversal=0x0}

_WINDOW_FIELDS = {
    "size": "size",
    "stride": "stride",
    "lhs_dilate": "base_dilation",
    "rhs_dilate": "window_dilation",
    "rhs_reversal": "window_reversal",
}
_WINDOW_ITEM = re.compile(r"(\w++)=([-\d_x]++)")


def _window(scanner: Scanner) -> tuple[WindowDimension, ...]:
    scanner.expect("{")
    columns: dict[str, list[Any]] = {}
    while not scanner.take("}"):
        start = scanner.pos
        match = scanner.match(_WINDOW_ITEM)
        if not match or match[1] in columns:
            scanner.fail("expected size=, stride=, pad=, lhs_dilate=, rhs_dilate= or rhs_reversal=, each once", start)
        columns[match[1]] = _columns(scanner, match[1], match[2], start)
    count = len(columns.get("size", ()))
    if "rhs_reversal" in columns:
        # XLA ignores surplus entries, and uses 0 for missing ones.
        columns["rhs_reversal"] = (columns["rhs_reversal"] + [0] * count)[:count]
    if any(len(column) != count for column in columns.values()):
        scanner.fail("a window gives size=, and every list has an entry for each dimension", 0)
    pads = columns.pop("pad", None)
    dimensions = []
    for d in range(count):
        fields = {_WINDOW_FIELDS[name]: column[d] for name, column in columns.items()}
        if "window_reversal" in fields:
            fields["window_reversal"] = bool(fields["window_reversal"])
        low, high = pads[d] if pads else (0, 0)
        dimensions.append(WindowDimension(padding_low=low, padding_high=high, **fields))
    return tuple(dimensions)


def _columns(scanner: Scanner, name: str, text: str, start: int) -> list[Any]:
    try:
        if name == "pad":
            pairs = [tuple(_small_int(padding) for padding in entry.split("_")) for entry in text.split("x")]
            if all(len(pair) == 2 for pair in pairs):
                return pairs
        elif name in _WINDOW_FIELDS:
            return [_small_int(entry) for entry in text.split("x")]
    except ValueError:
        pass
    scanner.fail(f"cannot read the window's {name}={text}", start)


def _small_int(text: str) -> int:
    value = int(text)
    if not -(2**62) < value < 2**62:
        raise ValueError(text)
    return value


def window_text(window: tuple[WindowDimension, ...]) -> str:
    """The text of a window, `{size=3x3 stride=2x2 pad=1_1x1_1}`; lists of defaults are omitted, except size."""
    default = WindowDimension()
    items = []
    for name in ("size", "stride", "pad", "lhs_dilate", "rhs_dilate", "rhs_reversal"):
        if name == "pad":
            shown = any(d.padding_low or d.padding_high for d in window)
            values = [f"{d.padding_low}_{d.padding_high}" for d in window]
        else:
            field = _WINDOW_FIELDS[name]
            shown = name == "size" or any(getattr(d, field) != getattr(default, field) for d in window)
            values = [str(int(getattr(d, field))) for d in window]
        if shown and window:
            items.append(f"{name}={'x'.join(values)}")
    return "{" + " ".join(items) + "}"


# Dimension labels: b01f_01io->b01f

_LABELS = re.compile(r"([\dbf?]++)_([\dio?]++)->([\dbf?]++)")


def _dim_labels(scanner: Scanner) -> ConvolutionDimensionNumbers:
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

    return (
        side(n.input_batch_dimension, n.input_feature_dimension, n.input_spatial_dimensions, "bf")
        + "_"
        + side(n.kernel_output_feature_dimension, n.kernel_input_feature_dimension, n.kernel_spatial_dimensions, "oi")
        + "->"
        + side(n.output_batch_dimension, n.output_feature_dimension, n.output_spatial_dimensions, "bf")
    )


_PADDING = re.compile(r"-?\d++(?:_-?\d++){1,2}(?:x-?\d++(?:_-?\d++){1,2})*+")


def _padding(scanner: Scanner) -> tuple[PaddingDimension, ...]:
    if scanner.at_end():
        return ()
    match = scanner.match(_PADDING)
    if not match:
        scanner.fail("expected padding like 0_1x2_0_1 (low_high_interior)", 0)
    try:
        return tuple(PaddingDimension(*(_small_int(n) for n in entry.split("_"))) for entry in match[0].split("x"))
    except ValueError:
        scanner.fail("a padding number does not fit", 0)


def _padding_text(padding: tuple[PaddingDimension, ...]) -> str:
    interior = any(p.interior_padding for p in padding)
    return "x".join(
        f"{p.edge_padding_low}_{p.edge_padding_high}" + (f"_{p.interior_padding}" if interior else "") for p in padding
    )


def _slice(scanner: Scanner) -> SliceDimension:
    scanner.expect("[")
    bounds = [scanner.integer()]
    while scanner.take(":"):
        bounds.append(scanner.integer())
    scanner.expect("]")
    if len(bounds) not in (2, 3):
        scanner.fail("expected [start:limit] or [start:limit:stride]")
    return SliceDimension(*bounds)


def _slices_text(slices: tuple[SliceDimension, ...]) -> str:
    return "{" + ", ".join(f"[{s.start}:{s.limit}" + (f":{s.stride}]" if s.stride != 1 else "]") for s in slices) + "}"


# Replica groups: {{0,1},{2,3}}, [2,4]<=[8], [4,2]<=[2,4]T(1,0)


def _replica_groups(scanner: Scanner) -> AnyReplicaGroups:
    if scanner.take("mesh"):
        return _mesh_groups(scanner)
    if scanner.text.startswith("{", scanner.pos):
        groups = scan_list(scanner, _ints)
        return ReplicaGroups(tuple(groups))
    start = scanner.pos
    shape = scan_list(scanner, Scanner.integer, "[", "]")
    scanner.expect("<=")
    reshape, transpose = scan_iota(scanner)
    product = 1
    for size in reshape:
        product *= size
    if len(shape) != 2 or min(shape) < 1 or shape[0] * shape[1] != product or product > 1 << 24:
        scanner.fail("expected [groups,members]<=[sizes]T(permutation) with as many ids on both sides", start)
    return IotaReplicaGroups(shape[0], shape[1], reshape, transpose)


_AXIS_NAME = re.compile(r"'([^'\n]*+)'")


def _mesh_groups(scanner: Scanner) -> MeshReplicaGroups:
    """Reads `['a'=2,'b'=2], device_ids=([2,2]T(1,0)) {'a':(1)2}`, after the word mesh."""
    start = scanner.pos
    axes = dict(scan_list(scanner, _mesh_axis, "[", "]"))
    names, sizes = tuple(axes), tuple(axes.values())
    devices: tuple[int, ...] = ()
    reshape: tuple[int, ...] = ()
    transpose: tuple[int, ...] = ()
    if scanner.take(","):
        scanner.expect("device_ids=(")
        if scanner.text.startswith("[", scanner.pos):
            reshape, transpose = scan_iota(scanner)
        else:
            devices = (scanner.integer(), *(scanner.integer() for _ in iter(lambda: scanner.take(","), False)))
        scanner.expect(")")
    refs = tuple(scan_list(scanner, lambda s: _axis_ref(s, names)))
    groups = MeshReplicaGroups(names, sizes, refs, devices, reshape, transpose)
    try:
        groups.check()
    except ArgumentError as error:
        scanner.fail(error.message, start)
    return groups


def _mesh_axis(scanner: Scanner) -> tuple[str, int]:
    match = scanner.expect_match(_AXIS_NAME, "an axis like 'x'=2")
    scanner.expect("=")
    return match[1], scanner.integer("the size of the axis")


def _axis_ref(scanner: Scanner, names: tuple[str, ...]) -> AxisRef:
    match = scanner.match(_AXIS_NAME)
    if not match or match[1] not in names:
        scanner.fail(f"expected one of the axes {', '.join(names)}, got {scanner.preview()}")
    if not scanner.take(":"):
        return AxisRef(names.index(match[1]))
    scanner.expect("(")
    before = scanner.integer()
    scanner.expect(")")
    size = scanner.integer()
    if before < 1 or size < 1:
        scanner.fail("the parts of an axis have sizes >= 1")
    return AxisRef(names.index(match[1]), before, size)


def _mesh_text(groups: MeshReplicaGroups) -> str:
    axes = ",".join(f"'{name}'={size}" for name, size in zip(groups.axis_names, groups.axis_sizes, strict=True))
    devices = ",".join(map(str, groups.device_ids))
    if groups.iota_reshape_dims:
        devices = iota_text(groups.iota_reshape_dims, groups.iota_transpose_perm).removeprefix("<=")
    refs = ",".join(
        f"'{groups.axis_names[ref.axis]}'" + (f":({ref.pre_size}){ref.size}" if ref.size else "") for ref in groups.axes
    )
    return f"mesh[{axes}]" + (f", device_ids=({devices})" if devices else "") + f" {{{refs}}}"


def _replica_groups_text(groups: AnyReplicaGroups) -> str:
    if isinstance(groups, MeshReplicaGroups):
        return _mesh_text(groups)
    if isinstance(groups, ReplicaGroups):
        return _braced(_braced(group) for group in groups.groups)
    iota = iota_text(groups.iota_reshape_dims, groups.iota_transpose_perm)
    return f"[{groups.num_replica_groups},{groups.num_devices_per_group}]{iota}"


def _pair(scanner: Scanner) -> tuple[int, int]:
    start = scanner.pos
    pair = _ints(scanner)
    if len(pair) != 2:
        scanner.fail("expected a pair {source,target}", start)
    return pair[0], pair[1]


def _precision(scanner: Scanner) -> Precision:
    word = _word(scanner)
    try:
        return Precision(word.lower())
    except ValueError:
        scanner.fail(f"expected default, high or highest, got {word!r}")


# Aliasing: {{0}: (1, {}), {1}: (0, {}, must-alias)}


def scan_alias(scanner: Scanner) -> OutputOperandAlias:
    """Reads `{output index}: (operand number, {index}, kind)`, as of `input_output_alias`; the kind may be missing.

    Raises ParseError for anything else.
    """
    output = _ints(scanner)
    scanner.expect(":")
    scanner.expect("(")
    operand = scanner.integer("an operand number")
    index: tuple[int, ...] = ()
    kind = ""
    if scanner.take(","):
        index = _ints(scanner)
        if scanner.take(","):
            scanner.skip()
            start = scanner.pos
            kind = _word(scanner)
            if kind not in ("must-alias", "may-alias"):
                scanner.fail(f"expected must-alias or may-alias, got {kind!r}", start)
    scanner.expect(")")
    return OutputOperandAlias(output, operand, index, kind)


def alias_text(alias: OutputOperandAlias) -> str:
    """The text of an alias, as `scan_alias` reads it."""
    kind = f", {alias.kind}" if alias.kind else ""
    return f"{_index_text(alias.output_index)}: ({alias.operand_number}, {_index_text(alias.operand_index)}{kind})"


def _index_text(index: tuple[int, ...]) -> str:
    return "{" + ", ".join(map(str, index)) + "}"


def scan_names(scanner: Scanner) -> list[str]:
    """Reads the name of a computation, or several in braces; raises ParseError for anything else."""
    if not scanner.text.lstrip().startswith("{"):
        return [scanner.name("a computation name")]
    return scan_list(scanner, lambda s: s.name("a name"))


TABLE: dict[AttributeKind, tuple[Reader, Writer]] = {
    kinds.BOOL: (_bool, lambda value: "true" if value else "false"),
    kinds.INT: (Scanner.integer, str),
    kinds.FLOAT: (_float, lambda value: _float_text(np.float32(value))),
    kinds.STRING: (_string, quote),
    kinds.WORD: (_word, str),
    kinds.INTS: (_ints, _braced),
    kinds.BOOLS: (
        lambda scanner: tuple(scan_list(scanner, _bool)),
        lambda values: _braced("true" if value else "false" for value in values),
    ),
    kinds.DIMENSION: (_dimension, lambda value: f"{{{value}}}"),
    kinds.SHAPE: (scan_shape, lambda shape: shape.to_text()),
    kinds.SHAPES: (
        lambda scanner: tuple(scan_list(scanner, scan_shape)),
        lambda shapes: "{" + ", ".join(shape.to_text() for shape in shapes) + "}",
    ),
    kinds.WINDOW: (_window, window_text),
    kinds.DIM_LABELS: (_dim_labels, dim_labels_text),
    kinds.PADDING: (_padding, _padding_text),
    kinds.SLICES: (lambda scanner: tuple(scan_list(scanner, _slice)), _slices_text),
    kinds.REPLICA_GROUPS: (_replica_groups, _replica_groups_text),
    kinds.PAIRS: (
        lambda scanner: tuple(scan_list(scanner, _pair)),
        lambda pairs: _braced(_braced(pair) for pair in pairs),
    ),
    kinds.PRECISIONS: (
        lambda scanner: tuple(scan_list(scanner, _precision)),
        lambda values: _braced(value.value for value in values),
    ),
    kinds.ALIASING: (
        lambda scanner: tuple(scan_list(scanner, scan_alias)),
        lambda aliases: "{" + ", ".join(map(alias_text, aliases)) + "}",
    ),
    kinds.RESULT_ACCURACY: (_result_accuracy, _result_accuracy_text),
    kinds.DOMAIN: (_domain, _domain_text),
}
