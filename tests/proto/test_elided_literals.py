"""Constants whose elements a proto omits, as in TensorFlow's dumps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hloom as hl
from hloom.errors import HloomError
from hloom.proto import module_from_bytes, module_to_proto

TEXT = """HloModule m
ENTRY e {
  x = f32[2] parameter(0)
  c = VALUE
  ROOT r = f32[2] negate(x)
}"""
FIELDS = ("f32s", "s32s", "bf16s", "u4s", "preds", "c64s", "tuple_literals")


def stripped(value: str) -> Any:
    """The proto of a module with the constant, without the constant's values."""
    proto = module_to_proto(hl.parse(TEXT.replace("VALUE", value)))
    for instruction in proto.computations[0].instructions:
        if instruction.opcode == "constant":
            for part in (instruction.literal, *instruction.literal.tuple_literals):
                for field in FIELDS[:-1]:
                    part.ClearField(field)
    return proto


@pytest.mark.parametrize(
    "value",
    [
        "f32[] constant(2)",
        "s32[2,2] constant({{1,2},{3,4}})",
        "bf16[3] constant({1,2,3})",
        "u4[3] constant({1,2,3})",
        "pred[2] constant({1,0})",
        "c64[1] constant({(1,2)})",
        "(f32[2], s32[]) constant(({1,2}, 3))",
    ],
)
def test_a_literal_with_a_shape_only_is_elided(value: str) -> None:
    """A literal without values is like `constant({...})` in text: it loads and prints, and runs only with random values."""
    module = module_from_bytes(stripped(value).SerializeToString())
    assert "constant({...})" in module.to_text()
    x = np.ones(2, np.float32)
    assert hl.compile(module, fill_elided=0)(x).tolist() == [-1, -1]
    with pytest.raises(HloomError, match="leaves out the values of %c"):
        hl.compile(module)


@pytest.mark.parametrize("value", ["f32[0] constant({})", "f32[2,0] constant({{},{}})", "() constant(())"])
def test_empty_constants_are_not_elided(value: str) -> None:
    module = module_from_bytes(stripped(value).SerializeToString())
    assert "..." not in module.to_text()


def test_truncated_values_are_an_error() -> None:
    proto = module_to_proto(hl.parse(TEXT.replace("VALUE", "f32[2] constant({1,2})")))
    (constant,) = [i for i in proto.computations[0].instructions if i.opcode == "constant"]
    del constant.literal.f32s[1:]
    with pytest.raises(HloomError, match="needs 2 elements, got 1"):
        module_from_bytes(proto.SerializeToString())
