"""Literals of 2- and 4-bit elements in protos: a byte for each element, as XLA has them; packed ones are read, too."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hloom.bench.peer_process import XlaPeer
from hloom.proto import module_from_bytes, module_to_bytes, module_to_proto

TYPES = ["s2", "u2", "s4", "u4", "f4e2m1fn"]


def module_of(element_type: str) -> hl.Module:
    values = "-1, 0, 1, -2, 1" if element_type[0] == "s" else "3, 0, 1, 2, 0"
    return hl.parse(f"ENTRY e {{ ROOT c = {element_type}[5] constant({{{values}}}) }}")


@pytest.mark.parametrize("element_type", TYPES)
def test_xla_reads_what_is_written(element_type: str, peer: XlaPeer) -> None:
    module = module_of(element_type)
    printed = hl.parse(peer.read_proto(module_to_bytes(module)))
    assert printed.entry.root.op == module.entry.root.op


@pytest.mark.parametrize("element_type", TYPES)
def test_each_element_has_a_byte(element_type: str) -> None:
    module = module_of(element_type)
    (instruction,) = module_to_proto(module).computations[0].instructions
    raw = getattr(instruction.literal, f"{element_type}s")
    bits = module.entry.root.shape.element_type.bits
    assert len(raw) == 5 and max(raw) < 1 << bits
    assert module_from_bytes(module_to_bytes(module)).entry.root.op == module.entry.root.op


@pytest.mark.parametrize("element_type", TYPES)
def test_packed_elements_are_read(element_type: str) -> None:
    module = module_of(element_type)
    proto = module_to_proto(module)
    literal = proto.computations[0].instructions[0].literal
    bits, raw = module.entry.root.shape.element_type.bits, getattr(literal, f"{element_type}s")
    whole = sum(int(code) << bits * k for k, code in enumerate(raw))
    setattr(literal, f"{element_type}s", whole.to_bytes(-(-5 * bits // 8), "little"))
    again = module_from_bytes(proto.SerializeToString())
    assert np.array_equal(again.entry.root.op.literal.value, module.entry.root.op.literal.value)
