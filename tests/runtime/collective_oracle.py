"""Expected results of collectives, by NumPy: modules of one collective, and arguments that reduce exactly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np

from hloom.types import PrimitiveType

Arrays = list[np.ndarray[Any, Any]]
REDUCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip
SHAPE = (4, 4)
GROUPINGS = ("all", "in pairs", "reversed", "channel", "global", "global in pairs")


@dataclass(frozen=True)
class Devices:
    """A run of so many replicas and partitions; device r * partitions + p is replica r, partition p."""

    replicas: int
    partitions: int

    @property
    def count(self) -> int:
        return self.replicas * self.partitions

    def device(self, replica: int, partition: int) -> int:
        return replica * self.partitions + partition


@dataclass(frozen=True)
class Grouping:
    """The groups of a collective in HLO text, and the groups of devices that this means."""

    text: str
    groups: list[list[int]] = field(default_factory=list)


def grouping(name: str, devices: Devices, of_partitions: bool) -> Grouping | None:
    """COLL-7; `of_partitions` for operations whose ids are partitions' where they have a channel."""
    replicas, partitions = range(devices.replicas), range(devices.partitions)
    if name in ("all", "in pairs", "reversed"):
        ids = [list(replicas)] if name == "all" else [[*replicas][::-1]]
        if name == "in pairs":
            ids = [[r, r + devices.replicas // 2] for r in range(devices.replicas // 2)]
        if not ids:
            return None
        return Grouping(_groups(ids), [[devices.device(r, p) for r in group] for p in partitions for group in ids])
    if name == "channel":
        if of_partitions:
            whole = [[devices.device(r, p) for p in partitions] for r in replicas]
            return Grouping(f"{_groups([[*partitions]])}, channel_id=1", whole)
        members = [devices.device(r, p) for r in replicas for p in partitions]
        return Grouping(f"{_groups([[*replicas]])}, channel_id=1", [members])
    if of_partitions or devices.count < 2:
        return None
    ids = [[*range(devices.count)]]
    if name == "global in pairs":
        ids = [[d, devices.count - 1 - d] for d in range(devices.count // 2)]
    return Grouping(f"{_groups(ids)}, channel_id=1, use_global_device_ids=true", ids)


def _groups(ids: list[list[int]]) -> str:
    return "replica_groups={" + ",".join("{" + ",".join(map(str, group)) + "}" for group in ids) + "}"


@dataclass(frozen=True)
class Case:
    """A module of one collective on p: T[4,4], and what it gives on all devices."""

    body: str
    expected: Callable[[Arrays], list[Any]]

    def text(self, devices: Devices, element_type: PrimitiveType, reducer: str) -> str:
        head = f"HloModule m, replica_count={devices.replicas}, num_partitions={devices.partitions}\n"
        reduced = f"f {{\n  a = T[] parameter(0)\n  b = T[] parameter(1)\n  ROOT r = T[] {reducer}(a, b)\n}}\n"
        entry = f"ENTRY e {{\n  p = T[4,4] parameter(0)\n  {self.body}\n}}\n"
        return (head + reduced + entry).replace("T[", f"{element_type}[")


def cases(name: str, devices: Devices, reducer: str = "add") -> dict[str, Case]:
    """The collectives that the groupings of this name allow."""
    found = {}
    plain, of_partitions = (grouping(name, devices, by_partition) for by_partition in (False, True))
    if plain is not None:
        found |= _with_global_ids(plain, REDUCTIONS[reducer])
    if of_partitions is not None:
        found |= _without_global_ids(of_partitions, "channel_id=1" if name == "channel" else "", devices)
    return found


def _with_global_ids(by: Grouping, reduction: Callable[[Any, Any], Any]) -> dict[str, Case]:
    size = len(by.groups[0])

    def reduced(group: list[int], p: Arrays) -> Any:
        # Sums of small integers are those of Python's types of eight bytes; they all fit.
        return reduce(reduction, [p[device] for device in group])

    made = {
        "all-reduce": Case(
            f"ROOT r = T[4,4] all-reduce(p), to_apply=f, {by.text}",
            _by_group(by, lambda group, position, p: reduced(group, p)),
        ),
        "all-reduce of two": Case(
            "q = T[4,4] transpose(p), dimensions={1,0}\n  ROOT r = (T[4,4], T[4,4]) all-reduce(p, q), to_apply=f, "
            + by.text,
            _by_group(by, lambda group, position, p: (reduced(group, p), reduced(group, [a.T for a in p]))),
        ),
        "all-reduce, started": Case(
            f"s = T[4,4] all-reduce-start(p), to_apply=f, {by.text}\n  ROOT r = T[4,4] all-reduce-done(s)",
            _by_group(by, lambda group, position, p: reduced(group, p)),
        ),
    }
    for axis in (0, 1):
        wide = [4, 4]
        wide[axis] *= size
        made[f"all-gather along {axis}"] = Case(
            f"ROOT r = T[{wide[0]},{wide[1]}] all-gather(p), dimensions={{{axis}}}, {by.text}",
            _by_group(by, lambda group, position, p, axis=axis: np.concatenate([p[d] for d in group], axis)),
        )
        if 4 % size == 0:
            narrow = [4, 4]
            narrow[axis] //= size
            made[f"reduce-scatter along {axis}"] = Case(
                f"ROOT r = T[{narrow[0]},{narrow[1]}] reduce-scatter(p), dimensions={{{axis}}}, to_apply=f, {by.text}",
                _by_group(by, lambda group, position, p, axis=axis: np.split(reduced(group, p), size, axis)[position]),
            )
    return made


def _without_global_ids(by: Grouping, channel: str, devices: Devices) -> dict[str, Case]:
    size = len(by.groups[0])
    made = {
        "collective-broadcast": Case(
            f"ROOT r = T[4,4] collective-broadcast(p), {by.text}",
            _by_group(by, lambda group, position, p: p[group[0]]),
        ),
        "all-to-all of a tuple": Case(
            f"n = T[4,4] negate(p)\n  ROOT r = ({', '.join(['T[4,4]'] * size)}) "
            f"all-to-all({', '.join(['p', 'n', 'n', 'p', 'p', 'p', 'n', 'n'][:size])}), {by.text}",
            _by_group(by, lambda group, position, p: tuple(_sign(position) * p[d] for d in group)),
        ),
        **_permutes(channel, devices),
    }
    for axis in (0, 1):
        if 4 % size == 0:
            made[f"all-to-all along {axis}"] = Case(
                f"ROOT r = T[4,4] all-to-all(p), dimensions={{{axis}}}, {by.text}",
                _by_group(
                    by,
                    lambda group, position, p, axis=axis: np.concatenate(
                        [np.split(p[d], size, axis)[position] for d in group], axis
                    ),
                ),
            )
    return made


def _sign(position: int) -> int:
    return (1, -1, -1, 1, 1, 1, -1, -1)[position]


def _permutes(channel: str, devices: Devices) -> dict[str, Case]:
    """Permutes to the next one, and from the last to the first alone; ids are partitions' with a channel, else replicas'."""
    count = devices.partitions if channel else devices.replicas
    whole = {(k, (k + 1) % count) for k in range(count)}
    made = {}
    for name, pairs in (("of all", sorted(whole)), ("to one", [(count - 1, 0)])):
        sources = {target: source for source, target in pairs}

        def expected(p: Arrays, sources: dict[int, int] = sources) -> list[Any]:
            results = []
            for device in range(devices.count):
                replica, partition = divmod(device, devices.partitions)
                source = sources.get(partition if channel else replica)
                if source is None:
                    results.append(np.zeros_like(p[device]))
                else:
                    results.append(p[devices.device(replica, source) if channel else devices.device(source, partition)])
            return results

        text = ",".join(f"{{{source},{target}}}" for source, target in pairs)
        attributes = f"source_target_pairs={{{text}}}" + (f", {channel}" if channel else "")
        made[f"collective-permute {name}"] = Case(f"ROOT r = T[4,4] collective-permute(p), {attributes}", expected)
    return made


def _by_group(by: Grouping, of_member: Callable[..., Any]) -> Callable[[Arrays], list[Any]]:
    """The results by device; `of_member` takes a group, the position of a member in it, and the arguments."""

    def expected(p: Arrays) -> list[Any]:
        found = {device: of_member(group, position, p) for group in by.groups for position, device in enumerate(group)}
        return [found[device] for device in range(len(p))]

    return expected


def arguments(devices: Devices, element_type: PrimitiveType, seed: int = 0) -> Arrays:
    """Small whole numbers, which all reductions of eight of them keep exact."""
    rng = np.random.default_rng(seed)
    if element_type.is_pred:
        return [rng.random(SHAPE) < 0.5 for _ in range(devices.count)]
    choices = [0, 1] if element_type.bits <= (8 if element_type.is_float else 4) else [1, 2]
    if element_type is PrimitiveType.F8E8M0FNU:
        choices = [1, 2]
    return [rng.choice(choices, SHAPE).astype(element_type.dtype) for _ in range(devices.count)]


def reductions_of(element_type: PrimitiveType) -> list[str]:
    """The reductions that keep the arguments exact, whatever the order."""
    if element_type.is_pred:
        return ["and", "or", "xor"]
    if element_type in (PrimitiveType.F8E8M0FNU, PrimitiveType.F4E2M1FN):
        return ["maximum", "minimum"]
    if element_type.is_complex:
        return ["add", "multiply"]
    exact = ["add", "multiply", "maximum", "minimum"]
    return exact + ["and", "or", "xor"] if element_type.is_integer else exact
