"""The host's side of a run: items for the infeeds of a program, and the items of its outfeeds as further results."""

from __future__ import annotations

from collections.abc import Sequence

from hloom.fuzz.grammar.draw import Draw
from hloom.fuzz.grammar.values import draw_array
from hloom.ir import Module
from hloom.ops.communication import Infeed, Outfeed
from hloom.runtime.device import Device
from hloom.shape import Shape
from hloom.values import Value

SECONDS = 10.0
"""Time to wait for an item that the program has written."""


def feed(module: Module, devices: Sequence[Device]) -> None:
    """Gives each device an item for each infeed, which runs once; they depend on its position alone.

    Infeeds of drawn modules are in the entry; a pass may have wrapped it.
    """
    infeeds = [i for i in module.instructions() if isinstance(i.op, Infeed)]
    for position, infeed in enumerate(infeeds):
        item = _item(Draw(position), infeed.shape.elements[0])
        for device in devices:
            device.transfer_to_infeed(item)


def _item(draw: Draw, shape: Shape) -> Value:
    if shape.is_tuple:
        return tuple(_item(draw, element) for element in shape.elements)
    return draw_array(draw, shape.element_type, shape.dimensions)


def written(module: Module, devices: Sequence[Device]) -> tuple[Value, ...]:
    """Returns what the outfeeds have written on all devices."""
    count = sum(isinstance(i.op, Outfeed) for i in module.instructions())
    return tuple(device.transfer_from_outfeed(SECONDS) for device in devices for _ in range(count))
