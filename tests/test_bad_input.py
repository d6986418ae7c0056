"""Damaged text, protos, attributes and arguments: an hloom error or a valid module, in bounded time, nothing else."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hloom as hl
from conftest import CORPUS
from hloom.errors import ResourceExhaustedError
from hloom.files.arrays import read_arrays
from hloom.fuzz.damage import mutate_bytes, mutate_text
from hloom.fuzz.grammar import draw_case
from hloom.ops.operation import OPERATIONS
from hloom.proto import module_from_bytes, module_to_bytes
from hloom.proto.shapes import read_shape, write_shape
from hloom.text import parse_module

CASES = int(os.environ.get("HLOOM_CASES", "24000"))
BLOCK = 1000
SECONDS = 20.0


def texts() -> list[str]:
    """Programs to damage: those of the corpus, and generated ones."""
    paths = sorted([*CORPUS.glob("*/module.hlo"), *CORPUS.glob("parse/*.hlo")])
    small = [path for path in paths if path.stat().st_size < 30_000]
    return [path.read_text() for path in small] + [draw_case(seed).module.to_text() for seed in range(200)]


def outcome(text: str) -> str:
    """ "ok", or the class of the hloom error; any other exception passes through."""
    started = time.monotonic()
    try:
        module = parse_module(text)
    except hl.HloomError as error:
        assert str(error)
        return type(error).__name__
    finally:
        assert time.monotonic() - started < SECONDS
    assert parse_module(module.to_text()) is not None
    return "ok"


def damage_texts(first: int, count: int) -> dict[str, int]:
    programs, counts = texts(), dict[str, int]()
    for seed in range(first, first + count):
        rng = np.random.default_rng(seed)
        text = mutate_text(programs[seed % len(programs)], rng)
        try:
            kind = outcome(text)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
        counts[kind] = counts.get(kind, 0) + 1
    return counts


def try_damaged(contents: list[bytes], first: int, count: int, read: Callable[[bytes], object]) -> None:
    """Reads damaged bytes: whatever is raised is an hloom error."""
    for seed in range(first, first + count):
        rng = np.random.default_rng(seed)
        content = mutate_bytes(contents[seed % len(contents)], rng)
        try:
            read(content)
        except hl.HloomError:
            continue
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error


def damage_protos(first: int, count: int) -> None:
    contents = [module_to_bytes(draw_case(seed).module) for seed in range(60)]
    try_damaged(contents, first, count, module_from_bytes)


def damage_arrays(first: int, count: int, folder: Path) -> None:
    path, contents = folder / "damaged.npz", []
    for write in (np.savez, np.savez_compressed):
        write(path, p0=np.arange(600, dtype=np.float32).reshape(2, 300), p1=np.zeros((), np.complex64))
        contents.append(path.read_bytes())

    def read(content: bytes) -> None:
        path.write_bytes(content)
        read_arrays(str(path))

    try_damaged(contents, first, count, read)


def damage_snapshots(first: int, count: int) -> None:
    cases = [draw_case(seed) for seed in range(30)]
    contents = [hl.Snapshot(case.module, [*(case.arguments or ())]).to_bytes() for case in cases]
    try_damaged(contents, first, count, hl.Snapshot.from_bytes)


def odd_value(rng: np.random.Generator) -> Any:
    """Something that a careless caller might pass as an attribute or operand."""
    options: list[Any] = [
        None,
        -1,
        0,
        1,
        3,
        10**20,
        1.5,
        "x",
        "",
        b"x",
        (),
        [0],
        [-1],
        [0, 0],
        [1, 0],
        [9],
        [[0, 1]],
        [[0, 1, 1]],
        {},
        object(),
        True,
        float("nan"),
        hl.f32,
        hl.f32[2, 3],
        "SAME",
        np.zeros(3),
        np.array("a"),
        lambda *a: a[0] if a else 0,
        lambda: 1,
    ]
    return options[int(rng.integers(len(options)))]


def misuse_builder(first: int, count: int) -> None:
    methods = sorted(name for name in dir(hl.XlaBuilder) if not name.startswith("_"))
    for seed in range(first, first + count):
        rng = np.random.default_rng(seed)
        b = hl.XlaBuilder("misused")
        shapes = [hl.f32[2, 3], hl.f32[()], hl.s32[3], hl.pred[2, 3], hl.c64[2], hl.f32[4, 4], hl.u64[2]]
        ops = [b.parameter(i, shape) for i, shape in enumerate(shapes)]
        ops += [b.tuple(ops[0], ops[1]), b.after_all()]
        method = methods[seed % len(methods)]
        arguments = [
            ops[int(rng.integers(len(ops)))] if rng.random() < 0.6 else odd_value(rng)
            for _ in range(int(rng.integers(0, 7)))
        ]
        try:
            getattr(b, method)(*arguments)
        except hl.HloomError:
            continue
        except TypeError as error:
            # Python's own check of a call: too few or too many arguments.
            if "argument" in str(error) and f"{method}()" in str(error):
                continue
            raise AssertionError(f"seed {seed}: {method}{arguments}: TypeError: {error}") from error
        except Exception as error:
            raise AssertionError(f"seed {seed}: {method}{arguments}: {type(error).__name__}: {error}") from error


def test_some_damaged_texts_give_hloom_errors() -> None:
    counts = damage_texts(0, 300)
    assert counts["ParseError"] > 100


def test_some_damaged_protos_give_hloom_errors() -> None:
    damage_protos(0, 300)


def test_some_damaged_arrays_and_snapshots_give_hloom_errors(tmp_path: Path) -> None:
    damage_arrays(0, 400, tmp_path)
    damage_snapshots(0, 200)


@pytest.mark.parametrize("entry", ["flag_bits", "compress_type"])
def test_archives_that_python_does_not_unpack_give_hloom_errors(entry: str, tmp_path: Path) -> None:
    """Encrypted ones, and those of an unknown compression."""
    path = tmp_path / "odd.npz"
    np.savez(path, p0=np.zeros(3))
    content = bytearray(path.read_bytes())
    offset = {"flag_bits": 6, "compress_type": 8}[entry]
    for signature, shift in ((b"PK\3\4", 0), (b"PK\1\2", 2)):
        content[content.index(signature) + offset + shift] = 1
    path.write_bytes(content)
    with pytest.raises(hl.ArgumentError, match="cannot read arrays"):
        read_arrays(str(path))


MANY_DIGITS = "9" * 5000
LONG_INTEGERS = [
    """HloModule m, replica_count=2, num_partitions=2, input_output_alias={ {0}: (0, {}, may-alias) }
add { a = f32[] parameter(0)
  ROOT s = f32[] add(a, a) }
ENTRY e { x = f32[4,3]{1,0:T(2,1)} parameter(0), sharding={devices=[2,1]<=[2]T(0)}, metadata={op_name="n" source_line=3}
  c = s32[2] constant({1, -2})
  d = f32[4]{0} constant({1.5, 2, 3e1, nan(0x7)})
  p = f32[6,3] pad(x, d), padding=1_1_0x0_0
  w = f32[2,3] reduce-window(p, d), window={size=2x2 stride=1x1 pad=0_0x1_1}, to_apply=add
  r = f32[4,3] all-reduce(x), replica_groups=[1,2]<=[2], channel_id=1, to_apply=add
  q = f32[4,3] custom-call(x), custom_call_target="f", output_to_operand_aliasing={{0}: (0, {1})}
  t = (f32[], f32[<=3]) tuple(d, d)
  g = f32[] get-tuple-element(t), index=1
  k = f32[2] rng-bit-generator(x), algorithm=rng_default, frontend_attributes={composite.version="7"}
  ROOT s = f32[2,3] slice(x), slice={[0:2], [0:3:1]} }
""",
    """#map = loc("a":3:4)
module @m attributes {mhlo.num_partitions = 2 : i32} {
  sdy.mesh @mesh = <["x"=2, "y"=1], device_ids=[0, 1]>
  func.func @main(%a: tensor<4x3xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x":(1)2}, {}]>}) -> tensor<2x3xf32> {
    %0 = stablehlo.slice %a [0:2, 0:3] : (tensor<4x3xf32>) -> tensor<2x3xf32>
    %c = stablehlo.constant dense<[1, -2]> : tensor<2xi32>
    %d = stablehlo.constant dense<1.5> : tensor<3xf32>
    %b = stablehlo.broadcast_in_dim %d, dims = [1] : (tensor<3xf32>) -> tensor<2x3xf32>
    %1:2 = "stablehlo.rng_bit_generator"(%c) {rng_algorithm = #stablehlo<rng_algorithm DEFAULT>} : (tensor<2xi32>) -> (tensor<2xi32>, tensor<4xui32>)
    %2 = stablehlo.reduce_precision %b, format = e5m2 : tensor<2x3xf32>
    %3 = stablehlo.custom_call @f(%2) {api_version = 1 : i32, backend_config = ""} : (tensor<2x3xf32>) -> tensor<?x3xf32, #stablehlo.bounds<2, ?>>
    return %0 : tensor<2x3xf32>
  }
}
""",
]


@pytest.mark.parametrize("text", LONG_INTEGERS, ids=["hlo", "stablehlo"])
def test_integers_longer_than_python_converts_give_hloom_errors(text: str) -> None:
    """Each number of a text in turn."""
    for number in re.finditer(r"\d+", text):
        longer = text[: number.start()] + MANY_DIGITS + text[number.end() :]
        with contextlib.suppress(hl.HloomError):
            hl.parse(longer)


def test_a_constant_of_thousands_of_digits_does_not_fit() -> None:
    with pytest.raises(hl.ParseError, match=r"2:35: constant of s64\[\]: 9{40}\.\. does not fit s64"):
        hl.parse(f"HloModule m\nENTRY e {{ ROOT a = s64[] constant({MANY_DIGITS}) }}")


def test_nesting_that_protobuf_does_not_read_is_not_written() -> None:
    def nested(depth: int) -> hl.Module:
        shape, value = "(" * depth + "f32[]" + ")" * depth, "(" * depth + "1" + ")" * depth
        return hl.parse(f"HloModule m\nENTRY e {{ ROOT c = {shape} constant({value}) }}")

    assert module_from_bytes(module_to_bytes(nested(80))).to_text() == nested(80).to_text()
    with pytest.raises(hl.ProtoError, match="at most 80 deep"):
        module_to_bytes(nested(81))


def test_a_buffer_in_a_proto_has_one_array() -> None:
    proto = write_shape(hl.Shape.buffer_of(hl.f32[2]))
    del proto.tuple_shapes[:]
    with pytest.raises(hl.ProtoError, match="a buffer has one array, got 0"):
        read_shape(proto)


def test_a_sharding_has_as_many_devices_as_tiles() -> None:
    text = "HloModule m, num_partitions=4\nENTRY e { ROOT a = f32[8,8] parameter(0), sharding={devices=[2,2]<=[12]} }"
    with pytest.raises(hl.HloomError, match=r"has 4 devices, its iota \[12\]"):
        hl.parse(text)


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
@pytest.mark.parametrize("size", [2**61 - 1, 2**63 - 1])
def test_arrays_of_no_elements_may_be_too_large_to_index(backend: str, size: int) -> None:
    """SL-22: NumPy counts their bytes as if sizes of 0 were 1, and the sine's are f64."""
    text = f"HloModule m\nENTRY e {{ x = f32[] parameter(0)\n b = f32[0,{size}] broadcast(x), dimensions={{}}\n ROOT r = f32[0,{size}] sine(b) }}"
    try:
        assert np.asarray(hl.compile(text, backend=backend)(np.float32(1))).shape == (0, size)
    except hl.HloomError as error:
        assert isinstance(error, ResourceExhaustedError)


def test_some_misused_builders_give_hloom_errors() -> None:
    misuse_builder(0, 600)


@pytest.mark.long
@pytest.mark.parametrize("first", range(10_000, 10_000 + CASES, BLOCK))
def test_damaged_texts_give_hloom_errors(first: int) -> None:
    damage_texts(first, min(BLOCK, CASES))


@pytest.mark.long
@pytest.mark.parametrize("first", range(10_000, 10_000 + CASES // 4, BLOCK))
def test_damaged_protos_give_hloom_errors(first: int) -> None:
    damage_protos(first, min(BLOCK, CASES // 4))


@pytest.mark.long
@pytest.mark.parametrize("first", range(10_000, 10_000 + CASES // 4, BLOCK))
def test_damaged_arrays_and_snapshots_give_hloom_errors(first: int, tmp_path: Path) -> None:
    damage_arrays(first, min(BLOCK, CASES // 4), tmp_path)
    damage_snapshots(first, min(BLOCK, CASES // 4))


@pytest.mark.long
@pytest.mark.parametrize("first", range(10_000, 10_000 + CASES // 4, BLOCK))
def test_misused_builders_give_hloom_errors(first: int) -> None:
    misuse_builder(first, min(BLOCK, CASES // 4))


def test_every_operation_rejects_shapes_without_a_python_error() -> None:
    """Each declaration with default attributes on odd operands: RuleError or a shape."""
    shapes = [hl.f32[2, 3], hl.f32[()], hl.s32[0], hl.pred[2], hl.Shape.tuple_of([]), hl.Shape.tuple_of([hl.f32[2]])]
    shapes += [hl.parse("HloModule m\nENTRY e { ROOT t = token[] after-all() }").entry.result_shape]
    for opcode, declaration in OPERATIONS.items():
        if any(field.required for field in declaration.fields):
            continue
        op = declaration()
        for result in shapes:
            for count in range(4):
                for shape in shapes:
                    try:
                        op.check(result, *op.bind([shape] * count))
                    except hl.HloomError:
                        continue
                    except Exception as error:
                        raise AssertionError(f"{opcode} on {[shape] * count} -> {result}: {error!r}") from error
