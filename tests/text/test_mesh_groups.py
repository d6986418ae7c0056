"""Replica groups along the axes of a device mesh (COLL-7)."""

from __future__ import annotations

import pytest

import hloom as hl
from hloom.bench.peer_process import XlaPeer
from hloom.proto import module_from_bytes, module_to_bytes

PROGRAM = """HloModule m, replica_count=8
add {{ a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }}
ENTRY e {{ x = f32[] parameter(0)
  ROOT r = f32[] all-reduce(x), replica_groups={groups}, to_apply=add }}"""


@pytest.mark.parametrize(
    ("groups", "members"),
    [
        ("mesh['a'=2,'b'=4] {'b'}", [(0, 1, 2, 3), (4, 5, 6, 7)]),
        ("mesh['a'=2,'b'=4] {'a'}", [(0, 4), (1, 5), (2, 6), (3, 7)]),
        ("mesh['a'=2,'b'=4] {'b','a'}", [(0, 4, 1, 5, 2, 6, 3, 7)]),
        ("mesh['a'=8] {'a':(1)2}", [(0, 4), (1, 5), (2, 6), (3, 7)]),
        ("mesh['a'=8] {'a':(4)2}", [(0, 1), (2, 3), (4, 5), (6, 7)]),
        ("mesh['a'=8] {'a':(2)2}", [(0, 2), (1, 3), (4, 6), (5, 7)]),
        ("mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'b'}", [(0, 2, 4, 6), (1, 3, 5, 7)]),
        ("mesh['a'=2,'b'=4], device_ids=(7,6,5,4,3,2,1,0) {'b'}", [(7, 6, 5, 4), (3, 2, 1, 0)]),
    ],
)
def test_groups_of_a_mesh(groups: str, members: list[tuple[int, ...]]) -> None:
    module = hl.parse(PROGRAM.format(groups=groups))
    assert list(module.entry.root.op.replica_groups.groups) == members  # type: ignore[attr-defined]
    assert f"replica_groups={groups}" in module.to_text()
    again = module_from_bytes(module_to_bytes(module))
    assert again.entry.root.op.replica_groups == module.entry.root.op.replica_groups  # type: ignore[attr-defined]
    hl.compile(module, backend="interpreter")


@pytest.mark.parametrize(
    "groups",
    ["mesh['a'=2]", "mesh['a'=0] {'a'}", "mesh['a'=2] {'b'}", "mesh['a'=6] {'a':(4)2}", "mesh['a'=2], device_ids=(0,0) {'a'}",
     "mesh[] {}", "mesh['a'=99999999999] {'a'}", "mesh['a'=2] {'a','a'}", "mesh['a'=4], device_ids=([3]) {'a'}"],
)  # fmt: skip
def test_invalid_meshes_are_errors(groups: str) -> None:
    with pytest.raises(hl.ParseError):
        hl.parse(PROGRAM.format(groups=groups))


def test_xla_reads_mesh_groups(peer: XlaPeer) -> None:
    for groups in (
        "mesh['a'=2,'b'=4] {'b'}",
        "mesh['a'=8] {'a':(1)2}",
        "mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'b'}",
    ):
        module = hl.parse(PROGRAM.format(groups=groups))
        assert groups in peer.parse(module.to_text())
        assert groups in peer.read_proto(module_to_bytes(module))
