"""The grammar of random modules: `draw_case(seed)` returns a valid module with arguments.

A `Body` is a computation under construction. Each step draws an operation, and its proposal draws attributes and asks
the body for operands: values that it has, or new ones. The shape rule of the operation says what the result is; what it
refuses is dropped, so that proposals need not be right. Operations without a proposal of their own get one that is
derived from their declaration (`proposals.py`).
"""

from hloom.fuzz.grammar.generate import draw_case

__all__ = ["draw_case"]
