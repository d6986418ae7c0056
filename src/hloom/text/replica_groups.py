"""Replica groups in HLO text: `{{0,1},{2,3}}`, `[2,4]<=[8]`, `[4,2]<=[2,4]T(1,0)`, `mesh['a'=2,'b'=2] {'a'}`."""

from __future__ import annotations

import math
import re

from hloom.errors import ArgumentError
from hloom.ops.attributes import AnyReplicaGroups, AxisRef, IotaReplicaGroups, MeshReplicaGroups, ReplicaGroups
from hloom.text.scanner import Scanner, braced, scan_ints, scan_list
from hloom.text.sharding import iota_text, scan_iota


def scan_replica_groups(scanner: Scanner) -> AnyReplicaGroups:
    """Reads replica groups in any form; raises ParseError for anything else."""
    if scanner.take("mesh"):
        return _mesh_groups(scanner)
    if scanner.peek("{"):
        return ReplicaGroups(tuple(scan_list(scanner, scan_ints)))
    start = scanner.pos
    shape = scan_list(scanner, Scanner.integer, "[", "]")
    scanner.expect("<=")
    reshape, transpose = scan_iota(scanner)
    product = math.prod(reshape)
    if len(shape) != 2 or min(shape) < 1 or math.prod(shape) != product or product > 1 << 24:
        scanner.fail("expected [groups,members]<=[sizes]T(permutation) with as many ids on both sides", start)
    return IotaReplicaGroups(shape[0], shape[1], reshape, transpose)


_AXIS_NAME = re.compile(r"'([^'\n]*+)'")


def _mesh_groups(scanner: Scanner) -> MeshReplicaGroups:
    """Reads `['a'=2,'b'=2], device_ids=([2,2]T(1,0)) {'a':(1)2}`, after the word mesh."""
    start = scanner.pos
    axes = dict(scan_list(scanner, _mesh_axis, "[", "]"))
    names, sizes = tuple(axes), tuple(axes.values())
    devices: tuple[int, ...] = ()
    reshape: tuple[int, ...] = ()
    transpose: tuple[int, ...] = ()
    if scanner.take(","):
        scanner.expect("device_ids=(")
        if scanner.peek("["):
            reshape, transpose = scan_iota(scanner)
        else:
            devices = (scanner.integer(), *(scanner.integer() for _ in iter(lambda: scanner.take(","), False)))
        scanner.expect(")")
    refs = tuple(scan_list(scanner, lambda s: _axis_ref(s, names)))
    groups = MeshReplicaGroups(names, sizes, refs, devices, reshape, transpose)
    try:
        groups.check()
    except ArgumentError as error:
        scanner.fail(error.message, start)
    return groups


def _mesh_axis(scanner: Scanner) -> tuple[str, int]:
    match = scanner.expect_match(_AXIS_NAME, "an axis like 'x'=2")
    scanner.expect("=")
    return match[1], scanner.integer("the size of the axis")


def _axis_ref(scanner: Scanner, names: tuple[str, ...]) -> AxisRef:
    match = scanner.match(_AXIS_NAME)
    if not match or match[1] not in names:
        scanner.fail(f"expected one of the axes {', '.join(names)}, got {scanner.preview()}")
    if not scanner.take(":"):
        return AxisRef(names.index(match[1]))
    scanner.expect("(")
    before = scanner.integer()
    scanner.expect(")")
    size = scanner.integer()
    if before < 1 or size < 1:
        scanner.fail("the parts of an axis have sizes >= 1")
    return AxisRef(names.index(match[1]), before, size)


def _mesh_text(groups: MeshReplicaGroups) -> str:
    axes = ",".join(f"'{name}'={size}" for name, size in zip(groups.axis_names, groups.axis_sizes, strict=True))
    devices = ",".join(map(str, groups.device_ids))
    if groups.iota_reshape_dims:
        devices = iota_text(groups.iota_reshape_dims, groups.iota_transpose_perm).removeprefix("<=")
    refs = ",".join(
        f"'{groups.axis_names[ref.axis]}'" + (f":({ref.pre_size}){ref.size}" if ref.size else "") for ref in groups.axes
    )
    return f"mesh[{axes}]" + (f", device_ids=({devices})" if devices else "") + f" {{{refs}}}"


def replica_groups_text(groups: AnyReplicaGroups) -> str:
    """The text of replica groups."""
    if isinstance(groups, MeshReplicaGroups):
        return _mesh_text(groups)
    if isinstance(groups, ReplicaGroups):
        return braced(map(braced, groups.groups))
    iota = iota_text(groups.iota_reshape_dims, groups.iota_transpose_perm)
    return f"[{groups.num_replica_groups},{groups.num_devices_per_group}]{iota}"
