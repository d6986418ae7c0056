"""Parses and prints MLIR text, with the custom assembly formats of StableHLO."""

from __future__ import annotations

from hloom.errors import ParseError
from hloom.stablehlo.mlir.assembly.reader import FORMS
from hloom.stablehlo.mlir.assembly.writer import SYNTAX
from hloom.stablehlo.mlir.ir import Operation
from hloom.stablehlo.mlir.parser import Form, Parser
from hloom.stablehlo.mlir.printer import Printer


def parse_mlir(text: str, forms: dict[str, Form] | None = None) -> Operation:
    """Parses the MLIR text of a module, or of a module's body.

    `forms` adds custom assembly formats to StableHLO's. Raises ParseError, with line, column and caret.
    """
    if not isinstance(text, str):
        raise ParseError(f"MLIR text is a str, got {type(text).__name__}")
    return Parser(text, FORMS | forms if forms else FORMS).parse()


def print_mlir(module: Operation) -> str:
    """The text of a module operation; parsing it gives the same operations."""
    return Printer(SYNTAX).module(module)
