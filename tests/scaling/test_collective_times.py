"""The model of collectives, against formulas that were evaluated by hand."""

from __future__ import annotations

import math

import pytest

from hloom.errors import ArgumentError
from hloom.ops.async_collectives import AllReduceStart
from hloom.ops.collectives import AllReduce
from hloom.ops.operation import OPERATIONS
from hloom.scaling.cluster import Cluster, Level
from hloom.scaling.collective_times import estimate

INNER = Level("machine", 4, 1e-6, 10e9, 5e9)
OUTER = Level("network", 8, 1e-5, 1e9, 5e9)
CLUSTER = Cluster(1e11, 1e10, math.inf, (INNER, OUTER))
SIZE = 4_000_000

EXPECTED = {
    # a message: latency and bytes
    ("collective-permute", (0, 1)): 1e-6 + SIZE / 10e9,
    ("collective-permute", (3, 4)): 1e-5 + SIZE / 1e9,
    # two phases of three quarters each, and reductions of three quarters
    ("all-reduce", (0, 1, 2, 3)): 4 * 1e-6 + 0.75 * (2 * SIZE / 10e9 + SIZE / 5e9),
    ("reduce-scatter", (0, 1, 2, 3)): 2 * 1e-6 + 0.75 * (SIZE / 10e9 + SIZE / 5e9),
    ("all-gather", (0, 1, 2, 3)): 2 * 1e-6 + 3 * SIZE / 10e9,
    ("all-to-all", (0, 1, 2, 3)): 3 * 1e-6 + 0.75 * SIZE / 10e9,
    # scattered in machines of four, gathered there; between, a quarter by a tree (one latency, all bytes) or in halves
    ("all-reduce", tuple(range(8))): 4 * 1e-6
    + 0.75 * (2 * SIZE / 10e9 + SIZE / 5e9)
    + min(1e-5 + SIZE / 4 / 1e9 + SIZE / 4 / 5e9, 2e-5 + 0.5 * (2 * SIZE / 4 / 1e9 + SIZE / 4 / 5e9)),
    # between machines first, then twice as much within
    ("all-gather", tuple(range(8))): 1e-5 + SIZE / 1e9 + 2 * 1e-6 + 3 * 2 * SIZE / 10e9,
}


@pytest.mark.parametrize("opcode, members", EXPECTED)
def test_times_are_those_of_the_best_algorithm(opcode: str, members: tuple[int, ...]) -> None:
    assert estimate(OPERATIONS[opcode], SIZE, members, CLUSTER).seconds == pytest.approx(EXPECTED[opcode, members])


def test_small_sums_go_up_a_tree_and_one_device_needs_no_time() -> None:
    assert estimate(AllReduceStart, 4, range(4), CLUSTER).algorithm == "tree"
    assert estimate(AllReduce, SIZE, [5], CLUSTER).seconds == 0


def test_devices_that_the_cluster_lacks_are_named() -> None:
    with pytest.raises(ArgumentError, match="device 32 is none of the 32 that the cluster has"):
        estimate(AllReduce, 4, [0, 32], CLUSTER)
