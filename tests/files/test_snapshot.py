"""Snapshots: a module with arguments and result, written, read and run again."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest

import hloom as hl
from hloom.proto import module_to_bytes, module_to_proto
from hloom.proto.schema import message_class
from hloom.proto.shapes import write_literal

TEXT = """HloModule m
ENTRY e { x = f32[2,3]{0,1} parameter(0)
  t = (bf16[2], s32[]) parameter(1)
  h = bf16[2] get-tuple-element(t), index=0
  y = f32[2,3] negate(x)
  ROOT r = (f32[2,3], bf16[2]) tuple(y, h) }
"""


@pytest.fixture
def snapshot() -> hl.Snapshot:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    t = (np.array([1, 2], hl.bf16.dtype), np.int32(7))
    return hl.Snapshot(hl.parse(TEXT), [x, t], (-x, t[0]))


def test_a_snapshot_survives_a_file(snapshot: hl.Snapshot, tmp_path: Path) -> None:
    path = tmp_path / "m.hlo_snapshot.pb"
    snapshot.save(path)
    again = hl.Snapshot.load(path)
    assert again.module.to_text() == snapshot.module.to_text()
    assert again.platform == "hloom"
    np.testing.assert_array_equal(again.arguments[0], snapshot.arguments[0])
    assert again.arguments[1][0].dtype == hl.bf16.dtype and again.arguments[1][1] == 7
    np.testing.assert_array_equal(again.result[0], snapshot.result[0])
    assert hl.load(path).to_text() == snapshot.module.to_text()


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_a_replay_gives_the_result_again(snapshot: hl.Snapshot, backend: str) -> None:
    np.testing.assert_array_equal(snapshot.replay(backend)[0], snapshot.result[0])


def test_scalars_and_smaller_dynamic_sizes_match(tmp_path: Path) -> None:
    module = hl.parse(
        "HloModule m\nENTRY e { x = f32[<=4] parameter(0)\n s = f32[] parameter(1)\n ROOT r = f32[<=4] negate(x) }"
    )
    hl.Snapshot(module, [np.ones(3, np.float32), 2.5]).save(tmp_path / "s.pb")
    again = hl.Snapshot.load(tmp_path / "s.pb")
    assert again.arguments[0].shape == (3,) and again.arguments[1] == 2.5 and again.result is None


def test_arguments_in_a_tuple_are_unpacked(snapshot: hl.Snapshot) -> None:
    message = message_class("HloSnapshot")()
    message.hlo.hlo_module.CopyFrom(module_to_proto(snapshot.module))
    message.arguments.append(write_literal(hl.Literal.from_value(tuple(snapshot.arguments))))
    again = hl.Snapshot.from_bytes(message.SerializeToString())
    assert len(again.arguments) == 2 and again.arguments[1][1] == 7


def test_an_unoptimised_snapshot_gives_the_arguments_of_its_first_partition(snapshot: hl.Snapshot) -> None:
    message = message_class("HloUnoptimizedSnapshot")()
    message.hlo_module.CopyFrom(module_to_proto(snapshot.module))
    literals = [write_literal(hl.Literal.from_value(value)) for value in snapshot.arguments]
    message.partitions.add(arguments=literals)
    again = hl.Snapshot.from_bytes(message.SerializeToString())
    assert again.result is None
    np.testing.assert_array_equal(again.arguments[0], snapshot.arguments[0])


def test_errors_name_the_mismatch(snapshot: hl.Snapshot, tmp_path: Path) -> None:
    with pytest.raises(hl.ProtoError, match="the file is not a snapshot: it has a module without arguments"):
        hl.Snapshot.from_bytes(module_to_bytes(snapshot.module))
    with pytest.raises(hl.ArgumentError, match=r"m takes 2 arguments \(%x: .*, %t: .*\), got 1"):
        hl.Snapshot(snapshot.module, snapshot.arguments[:1]).to_bytes()
    with pytest.raises(hl.ArgumentError, match=r"argument 0 \(%x\) has shape f32\[2,3\]"):
        hl.Snapshot(snapshot.module, [np.ones(3, np.float32), snapshot.arguments[1]]).to_bytes()
    with pytest.raises(hl.ArgumentError, match="cannot write"):
        snapshot.save(tmp_path / "none" / "s.pb")
    message = message_class("HloSnapshot").FromString(snapshot.to_bytes())
    del message.arguments[1]
    with pytest.raises(hl.ProtoError, match="the snapshot does not match its module: m takes 2 arguments"):
        hl.Snapshot.from_bytes(message.SerializeToString())


def test_damaged_snapshots_are_errors(snapshot: hl.Snapshot) -> None:
    content = snapshot.to_bytes()
    rng = np.random.default_rng(0)
    for _ in range(300):
        damaged = bytearray(content)
        for _ in range(int(rng.integers(1, 4))):
            damaged[rng.integers(len(damaged))] = rng.integers(256)
        with contextlib.suppress(hl.HloomError):
            hl.Snapshot.from_bytes(bytes(damaged[: rng.integers(len(damaged) // 2, len(damaged) + 1)]))
