"""Reads shardings: the `sharding` attribute of instructions (GSPMD), and Shardy's attributes as they are encoded in
HLO.

Shardy names the axes of meshes and tells which dimensions stay open. JAX writes it into frontend attributes, beside a
`sharding` that has lost the open dimensions; therefore the frontend attribute takes precedence:

    xla.sdy.sharding   "#sdy.sharding_per_value<[<@mesh, [{"x"}, {?}], replicated={"y"}>]>"
    xla.sdy.meshes     {mesh = #sdy.mesh<["x"=4, "y"=2]>}, an attribute of the module
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from hloom.errors import ArgumentError
from hloom.ir import Instruction
from hloom.ops.structure import GetTupleElement
from hloom.passes.spmd.shardings.mesh import SubAxis, sub_axes_of
from hloom.shape import Shape
from hloom.sharding import Sharding, ShardingType
from hloom.system.records import record

Assignment = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


@record
class Annotation:
    """The sharding of one array as the module annotates it.

    `sub_axes[d]` are the sub-axes along which dimension d is sharded; `sub_axes` is None where the blocks are assigned
    to partitions in an irregular order. `assignment` has the ids of the partitions that hold each block, copies along
    its last dimension. `open[d]` tells whether dimension d may be sharded further. `manual` are the sub-axes of a
    manual region, in which the array is a block rather than the whole. `device` is the only partition that holds the
    array, if there is just one. `unreduced` are the sub-axes along which partitions hold partial sums.
    """

    assignment: Assignment
    sub_axes: tuple[tuple[SubAxis, ...], ...] | None
    open: tuple[bool, ...]
    manual: tuple[SubAxis, ...] = ()
    unreduced: tuple[SubAxis, ...] = ()
    device: int | None = None

    @property
    def tiles(self) -> tuple[int, ...]:
        """The number of blocks along each dimension."""
        return self.assignment.shape[:-1]


def _annotation(assignment: Assignment, is_open: Sequence[bool], unreduced: Sequence[SubAxis] = ()) -> Annotation:
    sub_axes = sub_axes_of(assignment)
    sub_axis = None if sub_axes is None else tuple(sub_axes[:-1])
    return Annotation(assignment, sub_axis, tuple(is_open), unreduced=tuple(unreduced))


def replicated(rank: int, count: int, is_open: bool = False) -> Annotation:
    """Returns the annotation of an array that every partition holds whole."""
    return _annotation(np.arange(count).reshape((1,) * rank + (count,)), [is_open] * rank)


# GSPMD


def read_sharding(sharding: Sharding, rank: int, count: int, open_dimensions: Sequence[int] = ()) -> Annotation:
    """Reads the sharding of one array (not of a tuple); `open_dimensions` may be sharded further."""
    kind = sharding.type
    if sharding.named:
        raise ArgumentError(f"shardings over named mesh axes in HLO are not read, got {{{sharding.named}}}")
    if kind is ShardingType.MAXIMAL:
        (device,) = sharding.tile_assignment_devices
        return Annotation(np.full((1,) * rank + (1,), device), ((),) * rank, (False,) * rank, device=device)
    if kind is not ShardingType.OTHER:
        whole = replicated(rank, count, kind is ShardingType.UNKNOWN)
        axes_by_kind: dict[ShardingType, tuple[SubAxis, ...]] = {kind: (SubAxis(1, count),) if count > 1 else ()}
        manual, unreduced = (axes_by_kind.get(k, ()) for k in (ShardingType.MANUAL, ShardingType.UNREDUCED))
        return Annotation(whole.assignment, whole.sub_axes, whole.open, manual, unreduced)
    tiled = _tile_assignment(sharding, rank, count)
    kinds = sharding.last_tile_dims or (ShardingType.REPLICATED,) * (tiled.ndim - rank)
    is_open = [d in open_dimensions for d in range(rank)]
    found = sub_axes_of(tiled)
    if found is None and ShardingType.UNREDUCED in kinds:
        raise ArgumentError(
            f"partitions that hold partial sums are listed in the order of a mesh, got {tiled.ravel().tolist()}"
        )
    special: dict[ShardingType, list[SubAxis]] = {kind: [] for kind in ShardingType}
    for last, trailing in zip(kinds, found[rank:] if found is not None else ()):
        special[last] += trailing
    sub_axes = None if found is None else tuple(found[:rank])
    blocks = tiled.reshape((*tiled.shape[:rank], -1))
    return Annotation(
        blocks, sub_axes, tuple(is_open), tuple(special[ShardingType.MANUAL]), tuple(special[ShardingType.UNREDUCED])
    )


def _tile_assignment(sharding: Sharding, rank: int, count: int) -> Assignment:
    """The partition ids of a tiled sharding as an array over the tiles, before the last dimensions are interpreted."""
    sizes = sharding.tile_assignment_dimensions
    if len(sizes) < rank or math.prod(sizes) != count:
        raise ArgumentError(
            f"a sharding of an array of rank {rank} over {count} partitions has at least {rank} tile dimensions, whose "
            f"product is {count}, got {list(sizes)}"
        )
    if not sharding.iota_reshape_dims:
        devices = np.asarray(sharding.tile_assignment_devices, np.int64)
        if sorted(devices.tolist()) != list(range(count)):
            raise ArgumentError(f"a sharding lists each of the {count} partitions once, got {devices.tolist()}")
        return devices.reshape(sizes)
    iota: Any = np.arange(count).reshape(sharding.iota_reshape_dims)
    return iota.transpose(sharding.iota_transpose_perm or None).reshape(sizes)


def maximal_device(instruction: Instruction) -> int | None:
    """The only partition on which an instruction runs, if its sharding is maximal; None for other shardings."""
    sharding = instruction.sharding
    parts = () if sharding is None else sharding.tuple_shardings or (sharding,)
    devices = {part.tile_assignment_devices for part in parts if part.type is ShardingType.MAXIMAL}
    return devices.pop()[0] if len(devices) == 1 and len(parts) else None


# Shardy

_MESH = re.compile(r'"?([\w.$-]+)"?\s*=\s*#sdy\.mesh<\[(.*?)\](?:,\s*device_ids=\[(.*?)\])?>')
_AXIS_SIZE = re.compile(r'"([^"]*)"=(\d{1,9})\b')
_VALUE = re.compile(
    r'<@"?([\w.$-]+)"?, \[(.*?)\](?:, replicated=\{(?:.*?)\})?(?:, unreduced=(?:\w+)?\{(.*?)\})?>(?=[\],>]|$)'
)
_DIMENSION = re.compile(r"\{([^{}]*)\}")
_AXIS = re.compile(r'"([^"]*)"(?::\((\d{1,9})\)(\d{1,9}))?')
AxisRef = tuple[str, int, int]
"""A reference to an axis by name, or to a sub-axis of it as `"x":(pre)size` in Shardy; a `size` of 0 is the whole axis.
"""


@record
class NamedMesh:
    """A mesh as Shardy declares it: axis names with sizes, major first, and the partition ids in that order."""

    sizes: dict[str, int]
    devices: Assignment

    def sub_axes(self, ref: AxisRef) -> tuple[SubAxis, ...]:
        """Returns the sub-axes of partition ids that an axis, or a part of one, stands for.

        For irregular partition ids they are the sub-axes of the positions in the mesh.
        """
        pieces = self._split_axes({ref})
        sizes = [size for _, _, size in pieces]
        sub_axes = (
            sub_axes_of(self.devices.reshape(sizes)) or sub_axes_of(np.arange(math.prod(sizes)).reshape(sizes)) or []
        )
        return tuple(sub_axis for piece in _pieces_of(pieces, ref) for sub_axis in sub_axes[pieces.index(piece)])

    def assignment(self, dims: Sequence[Sequence[AxisRef]]) -> Assignment:
        """Returns the partition ids over the blocks of an array, copies along the last dimension."""
        pieces = self._split_axes({ref for axes in dims for ref in axes})
        used = [piece for axes in dims for ref in axes for piece in _pieces_of(pieces, ref)]
        order = [pieces.index(piece) for piece in (*used, *(p for p in pieces if p not in used))]
        blocks = [math.prod(size for ref in axes for _, _, size in _pieces_of(pieces, ref)) for axes in dims]
        return self.devices.reshape([size for _, _, size in pieces]).transpose(order).reshape((*blocks, -1))

    def _split_axes(self, refs: set[AxisRef]) -> list[AxisRef]:
        """Splits the axes at the bounds of the sub-axes that are referred to."""
        pieces: list[AxisRef] = []
        for name, full in self.sizes.items():
            bounds = {1, full}
            for _, pre, size in (ref for ref in refs if ref[0] == name and ref[2]):
                bounds |= {pre, pre * size}
            ordered = sorted(bounds)
            pieces += [(name, a, b // a) for a, b in zip(ordered, ordered[1:])] or [(name, 1, 1)]
        return pieces


def _pieces_of(pieces: Sequence[AxisRef], ref: AxisRef) -> list[AxisRef]:
    """The pieces of split axes that make up an axis or a sub-axis."""
    name, pre, size = ref
    return [p for p in pieces if p[0] == name and (not size or (pre <= p[1] and p[1] * p[2] <= pre * size))]


class Shardy:
    """Reads Shardy's attributes over the meshes that a module declares."""

    def __init__(self, meshes: str, count: int) -> None:
        self.count = count
        self.meshes: dict[str, NamedMesh] = {}
        for name, axes, devices in _MESH.findall(meshes):
            sizes = {axis: int(size) for axis, size in _AXIS_SIZE.findall(axes)}
            ids = [int(d) for d in devices.split(",")] if devices else list(range(math.prod(sizes.values())))
            self.meshes[name] = NamedMesh(sizes, np.asarray(ids, np.int64))

    def read(self, text: str, shapes: Sequence[Shape]) -> list[Annotation]:
        """Reads the annotations of some values from an attribute; ArgumentError unless there is one for each."""
        found = [self._read_value(*match) for match in _VALUE.findall(text)]
        if len(found) != len(shapes):
            raise ArgumentError(f"the attribute {text!r} has {len(found)} shardings for {len(shapes)} values")
        return found

    def manual(self, text: str, shardings: str) -> list[SubAxis]:
        """The sub-axes of the axes that `xla.sdy.manual_axes` lists, over the mesh of some shardings."""
        found = _VALUE.search(shardings)
        if found is None:
            return [SubAxis(1, self.count)] if self.count > 1 else []
        mesh = self._mesh(found[1])
        return [sub_axis for name in re.findall(r'"([^"]*)"', text) for sub_axis in mesh.sub_axes((name, 0, 0))]

    def _mesh(self, name: str) -> NamedMesh:
        if name not in self.meshes:
            raise ArgumentError(f"the module declares no mesh @{name}; it has: {', '.join(self.meshes) or 'none'}")
        return self.meshes[name]

    def _read_value(self, name: str, dims: str, unreduced: str) -> Annotation:
        mesh = self._mesh(name)
        texts = _DIMENSION.findall(dims)
        rank = len(texts)
        if not mesh.sizes and len(mesh.devices) == 1 and self.count > 1:
            device = int(mesh.devices[0])
            return Annotation(np.full((1,) * rank + (1,), device), ((),) * rank, (False,) * rank, device=device)
        axes = [[(n, int(pre or 0), int(size or 0)) for n, pre, size in _AXIS.findall(text)] for text in texts]
        partial = [
            sub_axis
            for n, pre, size in _AXIS.findall(unreduced)
            for sub_axis in mesh.sub_axes((n, int(pre or 0), int(size or 0)))
        ]
        assignment = (
            mesh.assignment(axes) if mesh.devices.size == self.count else replicated(rank, self.count).assignment
        )
        return _annotation(assignment, ["?" in text for text in texts], unreduced=partial)


def annotation_of(instruction: Instruction, shapes: Sequence[Shape], shardy: Shardy) -> list[Annotation] | None:
    """Returns the annotations of the leaves of an instruction; None if it has none."""
    if not shapes:  # an effect without results may have a sharding nevertheless
        return []
    text = instruction.frontend_attributes.get("xla.sdy.sharding")
    if text and "<@" in text:
        if isinstance(instruction.op, GetTupleElement) and len(_VALUE.findall(text)) != len(shapes):
            return None  # a copy of the operand's annotation, which is of all elements
        return shardy.read(text, shapes)
    if instruction.sharding is None:
        return None
    found = re.search(r"unspecified_dims=\[([\d,\s]*)\]", instruction.backend_config)
    open_dimensions = [int(d) for d in re.findall(r"\d{1,9}", found[1])] if found else []
    parts = instruction.sharding.tuple_shardings or (instruction.sharding,) * len(shapes)
    if len(parts) != len(shapes):
        return None
    return [
        read_sharding(part, shape.rank, shardy.count, open_dimensions)
        for part, shape in zip(parts, shapes, strict=True)
    ]
