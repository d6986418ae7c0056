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

from hloom.errors import HloomError
from hloom.ops import kinds
from hloom.ops.attributes import Domain, OutputOperandAlias, Precision, ResultAccuracy
from hloom.ops.kinds import AttributeKind, EnumKind
from hloom.text.literals import float_text
from hloom.text.replica_groups import replica_groups_text, scan_replica_groups
from hloom.text.scanner import STRING, Scanner, braced, quote, scan_ints, scan_list, unquote
from hloom.text.shapes import scan_shape
from hloom.text.sharding import scan_sharding, sharding_text
from hloom.text.windows import (
    dim_labels_text,
    padding_text,
    scan_dim_labels,
    scan_padding,
    scan_slice,
    scan_window,
    slices_text,
    window_text,
)

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


def _enum(scanner: Scanner, kind: EnumKind) -> Any:
    """Reads the word of a member; words in lower case are read in any case, as XLA does."""
    match = scanner.match(_WORD)
    for member in kind.enumeration:
        if match and member.value in (match[0], match[0].lower()):
            return member
    scanner.fail(f"expected {kind.description}", 0)


def _bool(scanner: Scanner) -> bool:
    match = scanner.match(_WORD)
    if not match or match[0] not in ("true", "false", "1", "0"):
        scanner.fail("expected true or false", 0)
    return match[0] in ("true", "1")


def _float(scanner: Scanner) -> float:
    return float(scanner.expect_match(_NUMBER, "a number")[0])


def _string(scanner: Scanner) -> str:
    return unquote(scanner.expect_match(STRING, "a quoted string")[0])


def _word(scanner: Scanner) -> str:
    return scanner.expect_match(_WORD, "a word")[0]


def _dimension(scanner: Scanner) -> int:
    start = scanner.pos
    values = scan_ints(scanner)
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
    entries: dict[str, Any] = dict(scan_list(scanner, _tolerance_entry))
    scanner.expect("}")
    return ResultAccuracy(**entries)


def _tolerance_entry(scanner: Scanner) -> tuple[str, float]:
    name = scanner.name("atol, rtol or ulps")
    if name not in ("atol", "rtol", "ulps"):
        scanner.fail(f"expected atol, rtol or ulps, got {name!r}")
    scanner.expect("=")
    return name, scanner.integer() if name == "ulps" else _float(scanner)


def _result_accuracy_text(value: ResultAccuracy) -> str:
    if not value.has_tolerance:
        return f"{{mode={value.mode}}}"
    return f"{{tolerance={{atol={float_text(value.atol)},rtol={float_text(value.rtol)},ulps={value.ulps}}}}}"


def _domain(scanner: Scanner) -> Domain:
    scanner.expect_tokens("{ kind=")
    kind = _string(scanner)
    scanner.expect_tokens(", entry=")
    entry = scan_sharding(scanner)
    scanner.expect_tokens(", exit=")
    exit_ = scan_sharding(scanner)
    scanner.expect("}")
    return Domain(kind, entry, exit_)


def _domain_text(value: Domain) -> str:
    return f"{{kind={quote(value.kind)}, entry={sharding_text(value.entry)}, exit={sharding_text(value.exit)}}}"


def _pair(scanner: Scanner) -> tuple[int, int]:
    start = scanner.pos
    pair = scan_ints(scanner)
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
    output = scan_ints(scanner)
    scanner.expect(":")
    scanner.expect("(")
    operand = scanner.integer("an operand number")
    index: tuple[int, ...] = ()
    kind = ""
    if scanner.take(","):
        index = scan_ints(scanner)
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
    output, operand = (braced(index, ", ") for index in (alias.output_index, alias.operand_index))
    return f"{output}: ({alias.operand_number}, {operand}{kind})"


def scan_names(scanner: Scanner) -> list[str]:
    """Reads the name of a computation, or several in braces; raises ParseError for anything else."""
    if not scanner.text.lstrip().startswith("{"):
        return [scanner.name("a computation name")]
    return scan_list(scanner, lambda s: s.name("a name"))


TABLE: dict[AttributeKind, tuple[Reader, Writer]] = {
    kinds.BOOL: (_bool, lambda value: "true" if value else "false"),
    kinds.INT: (Scanner.integer, str),
    kinds.FLOAT: (_float, lambda value: float_text(np.float32(value))),
    kinds.STRING: (_string, quote),
    kinds.WORD: (_word, str),
    kinds.INTS: (scan_ints, braced),
    kinds.BOOLS: (
        lambda scanner: tuple(scan_list(scanner, _bool)),
        lambda values: braced("true" if value else "false" for value in values),
    ),
    kinds.DIMENSION: (_dimension, lambda value: f"{{{value}}}"),
    kinds.SHAPE: (scan_shape, lambda shape: shape.to_text()),
    kinds.SHAPES: (
        lambda scanner: tuple(scan_list(scanner, scan_shape)),
        lambda shapes: braced((shape.to_text() for shape in shapes), ", "),
    ),
    kinds.WINDOW: (scan_window, window_text),
    kinds.DIM_LABELS: (scan_dim_labels, dim_labels_text),
    kinds.PADDING: (scan_padding, padding_text),
    kinds.SLICES: (lambda scanner: tuple(scan_list(scanner, scan_slice)), slices_text),
    kinds.REPLICA_GROUPS: (scan_replica_groups, replica_groups_text),
    kinds.PAIRS: (
        lambda scanner: tuple(scan_list(scanner, _pair)),
        lambda pairs: braced(braced(pair) for pair in pairs),
    ),
    kinds.PRECISIONS: (
        lambda scanner: tuple(scan_list(scanner, _precision)),
        lambda values: braced(value.value for value in values),
    ),
    kinds.ALIASING: (
        lambda scanner: tuple(scan_list(scanner, scan_alias)),
        lambda aliases: braced(map(alias_text, aliases), ", "),
    ),
    kinds.RESULT_ACCURACY: (_result_accuracy, _result_accuracy_text),
    kinds.DOMAIN: (_domain, _domain_text),
}
