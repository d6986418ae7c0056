"""Attributes of operations without a proposal of their own: drawn by their kind, as those of instances of rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hloom.fuzz.grammar.draw import Draw
from hloom.instances.attributes import drawn_attributes
from hloom.ops.attributes import ResultAccuracy
from hloom.ops.kinds import PRECISIONS, RESULT_ACCURACY, AttributeKind
from hloom.ops.operation import Operation
from hloom.shape import Shape

ACCURACIES: Mapping[AttributeKind, Sequence[Any]] = {
    RESULT_ACCURACY: (ResultAccuracy(), ResultAccuracy("highest"), ResultAccuracy(rtol=1e-4, ulps=4)),
    PRECISIONS: ((), ("highest", "highest"), ("high", "default")),
}
"""Values of the kinds that permit other results; instances of rules keep the defaults."""


def draw_attributes(draw: Draw, declaration: type[Operation], operand: Shape) -> dict[str, Any]:
    """Returns values of the attributes for an operation whose first operand has a shape; some keep their default."""
    accuracies = {
        field.name: draw.pick(ACCURACIES[field.kind])
        for field in declaration.fields
        if field.kind in ACCURACIES and draw.chance(0.5)
    }
    return drawn_attributes(declaration, draw.random, [operand]) | accuracies
