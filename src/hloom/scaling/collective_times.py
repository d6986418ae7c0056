"""Estimates the time of a collective, by the algorithms that libraries choose from.

A message costs its latency and its bytes at the bandwidth of the link; a reduction costs its bytes at the reduction
rate. The algorithms are those of Thakur, Rabenseifner and Gropp (2005): rings, recursive doubling and halving, trees;
and hierarchical ones, which use the inner links for all traffic that stays within a unit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from hloom.errors import ArgumentError
from hloom.ops.collectives import AllGather, AllReduce, AllToAll, CollectiveBroadcast, CollectivePermute, ReduceScatter
from hloom.ops.operation import Operation
from hloom.ops.ragged_all_to_all import RaggedAllToAll
from hloom.scaling.cluster import Cluster, Level
from hloom.system.records import record


@record
class Estimate:
    """Time in seconds, and the algorithm that achieves it."""

    seconds: float
    algorithm: str

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate(self.seconds + other.seconds, self.algorithm)


def estimate(collective: type[Operation], size: int, members: Sequence[int], cluster: Cluster) -> Estimate:
    """Estimates the time of a collective whose operand has `size` bytes on each of the devices `members`.

    ArgumentError if the cluster has fewer devices.
    """
    if max(members) >= cluster.device_count:
        raise ArgumentError(f"device {max(members)} is none of the {cluster.device_count} that the cluster has")
    levels = _spanned_levels(members, cluster)
    if not levels:
        return Estimate(0.0, "alone")
    outermost = levels[-1][0]
    flat_time, levelled_time = next(_TIMES[base] for base in collective.__mro__ if base in _TIMES)
    flat = flat_time(len(members), size, outermost)
    if len(levels) == 1 or levelled_time is None:
        return flat
    levelled = Estimate(levelled_time(size, levels), "level by level")
    return min(flat, levelled, key=lambda each: each.seconds)


def _spanned_levels(members: Sequence[int], cluster: Cluster) -> list[tuple[Level, int]]:
    """The levels that a group spans, each with the number of units of the level below that it connects."""
    found, units = [], [*members]
    for level in cluster.levels:
        outer = [unit // level.count for unit in units]
        most = max(outer.count(unit) for unit in {*outer})
        if most > 1:
            found.append((level, most))
        units = list(dict.fromkeys(outer))
        if len(units) == 1:
            break
    return found


def _best(**seconds: float) -> Estimate:
    name = min(seconds, key=lambda each: seconds[each])
    return Estimate(seconds[name], name)


def _all_reduce(n: int, size: float, level: Level) -> Estimate:
    a, b, c = level.latency, size / level.bandwidth, size / level.reduction_rate
    steps, share = math.ceil(math.log2(n)), (n - 1) / n
    return _best(
        ring=2 * (n - 1) * a + share * (2 * b + c),
        tree=steps * (a + b + c),
        halving=2 * steps * a + share * (2 * b + c),
    )


def _reduce_scatter(n: int, size: float, level: Level) -> Estimate:
    whole = (n - 1) / n * (size / level.bandwidth + size / level.reduction_rate)
    return _best(ring=(n - 1) * level.latency + whole, halving=math.ceil(math.log2(n)) * level.latency + whole)


def _all_gather(n: int, size: float, level: Level) -> Estimate:
    whole = (n - 1) * size / level.bandwidth
    return _best(ring=(n - 1) * level.latency + whole, doubling=math.ceil(math.log2(n)) * level.latency + whole)


def _all_to_all(n: int, size: float, level: Level) -> Estimate:
    return Estimate((n - 1) * level.latency + (n - 1) / n * size / level.bandwidth, "pairs")


def _broadcast(n: int, size: float, level: Level) -> Estimate:
    a, b, steps = level.latency, size / level.bandwidth, math.ceil(math.log2(n))
    return _best(tree=steps * (a + b), scatter=(steps + n - 1) * a + 2 * (n - 1) / n * b)


def _permute(n: int, size: float, level: Level) -> Estimate:
    return Estimate(level.latency + size / level.bandwidth, "message")


def _all_reduce_levelled(size: float, levels: Sequence[tuple[Level, int]]) -> float:
    """Seconds of a reduce-scatter in the inner level, an all-reduce outside, and an all-gather in the inner level."""
    (level, n), *outer = levels
    if not outer:
        return _all_reduce(n, size, level).seconds
    inside = _reduce_scatter(n, size, level).seconds + _all_gather(n, size / n, level).seconds
    return inside + _all_reduce_levelled(size / n, outer)


def _all_gather_levelled(size: float, levels: Sequence[tuple[Level, int]]) -> float:
    """Seconds of all-gathers from the outermost level, where blocks are small, to the innermost."""
    seconds = 0.0
    for level, n in reversed(levels):
        seconds += _all_gather(n, size, level).seconds
        size *= n
    return seconds


def _reduce_scatter_levelled(size: float, levels: Sequence[tuple[Level, int]]) -> float:
    seconds = 0.0
    for level, n in levels:
        seconds += _reduce_scatter(n, size, level).seconds
        size /= n
    return seconds


def _broadcast_levelled(size: float, levels: Sequence[tuple[Level, int]]) -> float:
    return sum(_broadcast(n, size, level).seconds for level, n in levels)


_FlatTime = Callable[[int, float, Level], Estimate]
_LevelledTime = Callable[[float, Sequence[tuple[Level, int]]], float]

_TIMES: dict[type, tuple[_FlatTime, _LevelledTime | None]] = {
    AllGather: (_all_gather, _all_gather_levelled),
    AllReduce: (_all_reduce, _all_reduce_levelled),
    AllToAll: (_all_to_all, None),
    CollectiveBroadcast: (_broadcast, _broadcast_levelled),
    CollectivePermute: (_permute, None),
    RaggedAllToAll: (_all_to_all, None),
    ReduceScatter: (_reduce_scatter, _reduce_scatter_levelled),
}
"""Models of each collective: the time over the links of one level, and that of an algorithm level by level, if any."""
