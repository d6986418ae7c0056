"""Describes a cluster by a few parameters: the rates of a device, and of its links, level by level.

A description is a TOML file, which `docs/how_to.md` explains entry by entry.
"""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Any

from hloom.errors import ArgumentError
from hloom.system.records import record


@record
class Level:
    """Links between `count` units of the level below.

    `latency` is in seconds per message; `bandwidth` and `reduction_rate` are in bytes per second and device.
    """

    name: str
    count: int
    latency: float
    bandwidth: float
    reduction_rate: float


@record
class Cluster:
    """Identical devices, connected level by level: device d is in unit d // count of the first level, and so on.

    `flops` is in operations per second, `memory_rate` in bytes per second.
    """

    flops: float
    memory_rate: float
    memory_bytes: float
    levels: tuple[Level, ...]

    @property
    def device_count(self) -> int:
        """The number of devices."""
        return math.prod(level.count for level in self.levels)


def load_cluster(path: Path) -> Cluster:
    """Reads a cluster from a TOML file; ArgumentError names the entry that is missing or not a positive number."""
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ArgumentError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ArgumentError(f"{path} is no TOML file: {error}") from None
    device, levels = found.get("device"), found.get("level")
    if not isinstance(device, dict) or not isinstance(levels, list) or not levels:
        raise ArgumentError(f"{path}: a cluster has a [device] and at least one [[level]]")
    return Cluster(
        1e9 * _number(path, device, "gflops"),
        1e9 * _number(path, device, "memory_gbs"),
        1e9 * _number(path, device, "memory_gb") if "memory_gb" in device else math.inf,
        tuple(_level(path, level) for level in levels),
    )


def _level(path: Path, level: Any) -> Level:
    count = _number(path, level, "count")
    if count != int(count):
        raise ArgumentError(f"{path}: 'count' of a level is a whole number, got {count}")
    return Level(
        str(level.get("name", "level")),
        int(count),
        1e-6 * _number(path, level, "latency_us"),
        1e9 * _number(path, level, "gbs"),
        1e9 * _number(path, level, "reduce_gbs"),
    )


def _number(path: Path, table: Any, name: str) -> float:
    value = table.get(name) if isinstance(table, dict) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise ArgumentError(f"{path}: {name!r} must be a positive number, got {value!r}")
    return float(value)


def to_toml(cluster: Cluster, comment: str) -> str:
    """The description of a cluster as `load_cluster` reads it, with a comment as its first line."""
    lines = [f"# {comment}", "[device]", f"gflops = {cluster.flops / 1e9:.4g}"]
    lines += [f"memory_gbs = {cluster.memory_rate / 1e9:.4g}"]
    if cluster.memory_bytes < math.inf:
        lines.append(f"memory_gb = {cluster.memory_bytes / 1e9:.4g}")
    for level in cluster.levels:
        lines += ["", "[[level]]", f'name = "{level.name}"', f"count = {level.count}"]
        lines += [f"latency_us = {1e6 * level.latency:.4g}", f"gbs = {level.bandwidth / 1e9:.4g}"]
        lines.append(f"reduce_gbs = {level.reduction_rate / 1e9:.4g}")
    return "\n".join([*lines, ""])
