"""MLIR text to operations and back, with the forms that StableHLO's operations have of their own."""

from __future__ import annotations

from hloom.errors import ParseError
from hloom.stablehlo.mlir.assembly import FORMS
from hloom.stablehlo.mlir.ir import Operation
from hloom.stablehlo.mlir.parser import Form, Parser
from hloom.stablehlo.mlir.printer import Printer
from hloom.stablehlo.mlir.syntax import SYNTAX


def parse_mlir(text: str, forms: dict[str, Form] | None = None) -> Operation:
    """The module that MLIR text holds; `forms` are further ops' own forms, as `assembly.FORMS` has them.

    Raises ParseError, with line, column and caret. Text without a module is the body of one.
    """
    if not isinstance(text, str):
        raise ParseError(f"MLIR text is a str, got {type(text).__name__}")
    return Parser(text, FORMS | forms if forms else FORMS).parse()


def print_mlir(module: Operation) -> str:
    """The text of a module operation; it reads back to the same operations."""
    return Printer(SYNTAX).module(module)
