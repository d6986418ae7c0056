"""What one element of an operation costs, in units of a vectorised addition: for fusion and for schedules."""

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
    """The cost of an element-wise operation."""
    return _COSTS.get(opcode, 1)
