"""Shardings in HLO text: `{replicated}`, `{devices=[2,2]<=[4]}`, `{{maximal device=0}, {manual}}`."""

from __future__ import annotations

import re

from hloom.sharding import Sharding, ShardingType, simplest_iota
from hloom.text.scanner import MAX_NESTING, Scanner, braced, scan_list

_WORD = re.compile(r"[a-z_]++")
_SIMPLE = {t.value: t for t in ShardingType if t not in (ShardingType.TUPLE, ShardingType.OTHER)}


def scan_sharding(scanner: Scanner, depth: int = 0) -> Sharding:
    """Reads a sharding in braces; `depth` counts the tuples around it. Raises ParseError for anything else."""
    if depth > MAX_NESTING:
        scanner.fail(f"shardings nest more than {MAX_NESTING} deep")
    scanner.skip()
    opening = scanner.pos
    scanner.expect("{")
    scanner.skip()
    if scanner.text.startswith(("{", "}"), scanner.pos):
        scanner.pos = opening
        parts = scan_list(scanner, lambda s: scan_sharding(s, depth + 1), what="between shardings")
        return Sharding(ShardingType.TUPLE, tuple_shardings=tuple(parts))
    start = scanner.pos
    match = scanner.match(_WORD)
    word = match[0] if match else ""
    if word == "mesh":
        # Shardings over named mesh axes are kept as text.
        scanner.pos = opening
        return Sharding(ShardingType.OTHER, named=scanner.raw_value()[1:-1])
    if word == "devices":
        return _scan_tiled(scanner)
    if word not in _SIMPLE:
        scanner.fail(f"expected {', '.join(_SIMPLE)} or devices=, got {word or scanner.preview()!r}", start)
    devices: tuple[int, ...] = ()
    if _SIMPLE[word] is ShardingType.MAXIMAL:
        scanner.expect("device=")
        devices = (scanner.integer("a device number"),)
    return Sharding(_SIMPLE[word], tile_assignment_devices=devices, extra=_extra(scanner))


def _scan_tiled(scanner: Scanner) -> Sharding:
    scanner.expect("=")
    dimensions = tuple(scan_list(scanner, Scanner.integer, "[", "]"))
    devices: list[int] = []
    iota: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    if scanner.take("<="):
        iota = scan_iota(scanner)
    else:
        devices.append(scanner.integer("a device number"))
        while scanner.take(","):
            devices.append(scanner.integer("a device number"))
    replicate = scanner.take("last_tile_dim_replicate")
    last: tuple[ShardingType, ...] = ()
    if scanner.take("last_tile_dims="):
        last = tuple(scan_list(scanner, _scan_type))
    return Sharding(
        ShardingType.OTHER,
        dimensions,
        tuple(devices),
        *iota,
        replicate_on_last_tile_dim=replicate,
        last_tile_dims=last,
        extra=_extra(scanner),
    )


def _scan_type(scanner: Scanner) -> ShardingType:
    match = scanner.expect_match(_WORD, f"one of {', '.join(_SIMPLE)}")
    return _SIMPLE.get(match[0]) or scanner.fail(f"expected one of {', '.join(_SIMPLE)}, got {match[0]}")


def _extra(scanner: Scanner) -> str:
    """Reads the words up to and including the closing brace."""
    words = []
    while not scanner.take("}"):
        words.append(scanner.raw_value())
        scanner.skip()
    return " ".join(words)


def sharding_text(sharding: Sharding) -> str:
    """The text of a sharding, with its braces."""
    if sharding.named:
        return "{" + sharding.named + "}"
    if sharding.type is ShardingType.TUPLE:
        return braced(map(sharding_text, sharding.tuple_shardings), ", ")
    words = [sharding.type.value]
    if sharding.type is ShardingType.MAXIMAL:
        words.append(f"device={sharding.tile_assignment_devices[0]}")
    elif sharding.type is ShardingType.OTHER:
        sizes = ",".join(map(str, sharding.tile_assignment_dimensions))
        if sharding.iota_reshape_dims:
            devices = iota_text(sharding.iota_reshape_dims, sharding.iota_transpose_perm)
        else:
            devices = ",".join(map(str, sharding.tile_assignment_devices))
        words = [f"devices=[{sizes}]{devices}"]
        if sharding.replicate_on_last_tile_dim:
            words.append("last_tile_dim_replicate")
        if sharding.last_tile_dims:
            words.append("last_tile_dims=" + braced((t.value for t in sharding.last_tile_dims), ", "))
    return braced([*words, sharding.extra] if sharding.extra else words, " ")


def scan_iota(scanner: Scanner) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Reads `[2,4]T(1,0)`: the sizes to which device ids are reshaped, and their transposition, in the simplest form.

    Raises ParseError for anything else.
    """
    start = scanner.pos
    reshape = tuple(scan_list(scanner, Scanner.integer, "[", "]"))
    transpose: tuple[int, ...] = ()
    if scanner.take("T"):
        transpose = tuple(scan_list(scanner, Scanner.integer, "(", ")"))
        if sorted(transpose) != list(range(len(reshape))):
            scanner.fail(f"T must permute the {len(reshape)} sizes", start)
    if not reshape or min(reshape) < 1:
        scanner.fail("sizes must be >= 1", start)
    return simplest_iota(reshape, transpose)


def iota_text(reshape: tuple[int, ...], transpose: tuple[int, ...]) -> str:
    """The text of an iota tile assignment, `<=[2,4]T(1,0)`."""
    sizes = ",".join(map(str, reshape))
    return f"<=[{sizes}]" + (f"T({','.join(map(str, transpose))})" if transpose else "")
