"""Costs of element-wise operations, for the decisions of passes and loop schedules.

The unit is the time of a vectorised addition of one element.
"""

from __future__ import annotations

_COSTS = {
    "acos": 20,
    "acosh": 40,
    "asin": 20,
    "asinh": 40,
    "atan2": 40,
    "atanh": 30,
    "cbrt": 30,
    "cosh": 30,
    "cosine": 30,
    "divide": 4,
    "erf": 25,
    "exponential": 15,
    "exponential-minus-one": 22,
    "log": 18,
    "log-plus-one": 22,
    "logistic": 20,
    "power": 60,
    "remainder": 20,
    "rsqrt": 6,
    "sine": 30,
    "sinh": 30,
    "sqrt": 5,
    "tan": 40,
    "tanh": 20,
}


def element_cost(opcode: str) -> int:
    """Returns the cost of computing one element of an operation, in vectorised additions; 1 for unlisted opcodes."""
    return _COSTS.get(opcode, 1)
