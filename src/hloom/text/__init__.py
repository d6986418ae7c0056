"""HLO text: the parser and the printer."""

from hloom.text.html import module_html
from hloom.text.parser import parse_module
from hloom.text.printer import PrintOptions, fingerprint, print_computation, print_instruction, print_module
from hloom.text.shapes import parse_shape

__all__ = [
    "PrintOptions",
    "fingerprint",
    "parse_module",
    "parse_shape",
    "print_computation",
    "print_instruction",
    "print_module",
    "module_html",
]
