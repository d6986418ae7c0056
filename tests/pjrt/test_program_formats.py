"""Programs in the formats of PJRT: HLO protos as PyTorch/XLA sends, StableHLO with and without jaxlib."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import hloom as hl
from hloom.errors import HloomError
from hloom.pjrt import api_address
from hloom.pjrt.loaded_executable import LoadedExecutable
from hloom.pjrt.programs import Source
from hloom.proto import module_to_proto
from hloom.proto.schema import message_class

SQUARE = "HloModule m\nENTRY e {\n x = f32[3] parameter(0)\n ROOT y = f32[3] multiply(x, x)\n}"
NESTED = """HloModule m, input_output_alias={ {1}: (0, {1}, may-alias) }
ENTRY e {
  p = (f32[2], f32[2]) parameter(0)
  z = f32[2] parameter(1)
  a = f32[2] get-tuple-element(p), index=0
  b = f32[2] get-tuple-element(p), index=1
  s = f32[2] add(a, z)
  t = (f32[2]) tuple(s)
  n = f32[2] negate(b)
  ROOT r = ((f32[2]), f32[2]) tuple(t, n)
}"""
STABLEHLO = """func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.multiply %x, %x : tensor<3xf32>
  return %0 : tensor<3xf32>
}"""


def proto_of(text: str) -> bytes:
    return bytes(module_to_proto(hl.parse(text)).SerializeToString())


def with_config(text: str) -> bytes:
    message = message_class("HloModuleProtoWithConfig")()
    message.hlo_module.CopyFrom(module_to_proto(hl.parse(text)))
    return bytes(message.SerializeToString())


def run(format: str, content: bytes, *arguments: Any) -> list[Any]:
    """Compiles and runs a program as the functions of the interface do."""
    api_address()
    options = message_class("CompileOptionsProto")()
    options.executable_build_options.num_replicas = options.executable_build_options.num_partitions = 1
    loaded = LoadedExecutable(Source(format, content), options.SerializeToString())
    (results,) = loaded.run([[np.array(argument, np.float32) for argument in arguments]])
    return [value.tolist() for value in results]


@pytest.mark.parametrize(("format", "content"), [("hlo", proto_of(SQUARE)), ("hlo_with_config", with_config(SQUARE))])
def test_hlo_protos(format: str, content: bytes) -> None:
    """A result that is an array is a single output."""
    assert run(format, content, [1, 2, 3]) == [[1, 4, 9]]


def test_tuples_are_flattened() -> None:
    """Parameters and results are the leaves of tuples; aliases refer to leaves by their ordinals."""
    content = proto_of(NESTED)
    assert run("hlo", content, [1, 2], [3, 4], [10, 20]) == [[11, 22], [-3, -4]]
    module = Source("hlo", content).read()
    assert [str(shape) for shape in module.entry.parameter_shapes] == ["f32[2]"] * 3
    (alias,) = module.input_output_alias
    assert (alias.output_index, alias.parameter_number, alias.parameter_index) == ((1,), 1, ())


def test_layouts_of_the_header_are_those_of_the_buffers() -> None:
    """SL-16: a parameter whose first dimension is minor is transposed in memory."""
    text = SQUARE.replace("HloModule m", "HloModule m, entry_computation_layout={(f32[2,3]{0,1})->f32[2,3]{1,0}}")
    content = proto_of(text.replace("f32[3]", "f32[2,3]"))
    assert run("hlo", content, [[1, 2], [3, 4], [5, 6]]) == [[[1, 9, 25], [4, 16, 36]]]


def test_protos_of_xla() -> None:
    hlo = pytest.importorskip("jaxlib._hlo")
    assert run("hlo", hlo.hlo_module_from_text(NESTED).as_serialized_hlo_module_proto(), [1, 2], [3, 4], [5, 6]) == [
        [6, 8],
        [-3, -4],
    ]


@pytest.mark.parametrize("has_jaxlib", [True, False])
def test_text_of_stablehlo(has_jaxlib: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without jaxlib, hloom parses the text itself."""
    if has_jaxlib:
        pytest.importorskip("jaxlib")
    else:
        monkeypatch.setitem(sys.modules, "jaxlib", None)
    module = Source("mlir", STABLEHLO.encode()).read()
    (result,) = hl.compile(module)(np.array([1, 2, 3], np.float32))
    assert result.tolist() == [1, 4, 9]


def test_bytecode_needs_jaxlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jaxlib", None)
    with pytest.raises(HloomError, match="jaxlib, which is not installed"):
        Source("mlir", b"ML\xefR\r\x01").read()


@pytest.mark.parametrize(
    ("format", "content", "message"),
    [
        ("hlo", b"\xff\xff", "not a serialised HloModuleProto"),
        ("hlo_with_config", b"ab", "not a serialised HloModuleProtoWithConfig"),
        ("hlo", b"", "names no computation"),
        ("hlo", proto_of(SQUARE.replace("f32[3]", "f32[?]")), "no unbounded dimensions"),
        ("vhlo", b"", "compiles programs of the formats mlir"),
    ],
)
def test_invalid_programs(format: str, content: bytes, message: str) -> None:
    with pytest.raises(HloomError, match=message):
        Source(format, content).read()


def test_executables_know_their_format() -> None:
    source = Source("hlo_with_config", b"a\nb\x00")
    assert Source.deserialized(source.serialized) == source
