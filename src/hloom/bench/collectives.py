"""Times collectives: those of MPI, of hloom between ranks and between threads, and of JAX on its CPU backend.

All ranks of an MPI run call `measure`. A sample starts with a barrier; its time is that of the slowest rank. Times are
medians of samples.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from hloom.api import compile
from hloom.bench.limits import Bandwidth, Limits
from hloom.errors import ArgumentError
from hloom.ops.collectives import AllGather, AllReduce, AllToAll, CollectivePermute, ReduceScatter
from hloom.ops.operation import Operation
from hloom.runtime.mpi.world import World, all_gather_values
from hloom.scaling.cluster import Cluster, Level
from hloom.system.records import record
from hloom.values import Array

SIZES = (4, 1 << 10, 1 << 14, 1 << 18, 1 << 22, 1 << 26)
"""Sizes of the operand on each device, in bytes."""
SAMPLES = 9
SAMPLE_SECONDS = 0.02
Work = Callable[[], object]


@record
class Case:
    """A collective of f32[count] on some devices, in HLO, in MPI and in JAX."""

    collective: type[Operation]
    attributes: str
    """Attributes in HLO text, with PAIRS for the pairs of each device and the next one."""
    mpi: Callable[[World, Array, Array], Work]
    """Makes a call of MPI's blocking function from the operand and memory for the result."""
    jax: Callable[[Any, Any, int], Any]
    """Applies JAX's function, from `jax.lax`, to an operand, for a number of devices."""
    result_count: Callable[[int, int], int] = lambda count, devices: count
    """The number of elements of the result, from that of the operand and the number of devices."""
    has_blocks: bool = False
    """Whether the operand consists of a block for each device."""


def _shift(world: World, data: Array, result: Array) -> Work:
    there, back = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    return partial(world.comm.Sendrecv, data, there, 0, result, back, 0)


CASES = (
    Case(
        AllReduce,
        "to_apply=add",
        lambda world, data, result: partial(world.comm.Allreduce, data, result),
        lambda lax, x, size: lax.psum(x, "i"),
    ),
    Case(
        ReduceScatter,
        "dimensions={0}, to_apply=add",
        lambda world, data, result: partial(world.comm.Reduce_scatter_block, data, result),
        lambda lax, x, size: lax.psum_scatter(x, "i", tiled=True),
        result_count=lambda count, devices: count // devices,
        has_blocks=True,
    ),
    Case(
        AllGather,
        "dimensions={0}",
        lambda world, data, result: partial(world.comm.Allgather, data, result),
        lambda lax, x, size: lax.all_gather(x, "i", tiled=True),
        result_count=lambda count, devices: count * devices,
    ),
    Case(
        AllToAll,
        "dimensions={0}",
        lambda world, data, result: partial(world.comm.Alltoall, data, result),
        lambda lax, x, size: lax.all_to_all(x, "i", 0, 0, tiled=True),
        has_blocks=True,
    ),
    Case(
        CollectivePermute,
        "source_target_pairs={PAIRS}",
        _shift,
        lambda lax, x, size: lax.ppermute(x, "i", [(k, (k + 1) % size) for k in range(size)]),
    ),
)


@record
class Row:
    """Times in seconds of a collective of `size` bytes per device, by implementation; None if not measured."""

    opcode: str
    size: int
    mpi: float
    ranks: float
    threads: float
    gloo: float | None


def measure(world: World, report: Callable[[str], None], with_gloo: bool, max_bytes: int = SIZES[-1]) -> list[Row]:
    """Times all collectives with operands of up to `max_bytes` bytes, on `world.size` devices.

    Raises ArgumentError with fewer than two ranks.
    """
    if world.size < 2:
        raise ArgumentError("collectives need at least two ranks: mpiexec -n 2 hloom bench --collectives")
    rows = []
    for case in CASES:
        for size in SIZES:
            count = math.ceil(size / 4 / world.size) * world.size if case.has_blocks else size // 4
            if size > max_bytes:
                continue
            report(f"{case.collective.opcode} of {size:,} bytes")
            rows.append(_measure(world, case, count, with_gloo))
    return rows


def _measure(world: World, case: Case, count: int, with_gloo: bool) -> Row:
    data = np.ones(count, np.float32)
    result = np.empty(case.result_count(count, world.size), np.float32)
    text = hlo(case, count, world.size)
    ranks = compile(text, distributed=True)
    ranks.run_replicas([[data]])  # the first run connects the ranks; later ones are native
    work_by_name: list[tuple[str, Work | None]] = [
        ("mpi", case.mpi(world, data, result)),
        ("ranks", lambda: ranks(data)),
        ("gloo", _by_jax(world, case, data) if with_gloo else None),
    ]
    times = {name: _median(world, work) if work else None for name, work in work_by_name}
    threads = compile(text)
    lists = [[data]] * world.size
    threads_seconds = _median_on_one_rank(world, lambda: threads.run_replicas(lists))
    assert times["mpi"] is not None and times["ranks"] is not None
    return Row(case.collective.opcode, 4 * count, times["mpi"], times["ranks"], threads_seconds, times["gloo"])


_PRODUCT, _SUM = 1024, 1 << 24


def measure_rank_limits(world: World) -> Limits:
    """Limits of a rank while all ranks compute: those of a matrix product, and of a sum larger than the caches."""
    a, v = np.ones((_PRODUCT, _PRODUCT), np.float32), np.ones(_SUM, np.float32)
    square = f"f32[{_PRODUCT},{_PRODUCT}]"
    product = compile(
        f"HloModule product\nENTRY e {{ a = {square} parameter(0) "
        f"ROOT r = {square} dot(a, a), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}} }}"
    )
    added = compile(f"HloModule sum\nENTRY e {{ v = f32[{_SUM}] parameter(0) ROOT r = f32[{_SUM}] add(v, v) }}")
    multiplying, moving = _median(world, lambda: product(a)), _median(world, lambda: added(v))
    rate = 2 * v.nbytes / moving
    return Limits(1, 2 * _PRODUCT**3 / multiplying, (Bandwidth(2 * v.nbytes, rate, rate, rate),))


def hlo(case: Case, count: int, devices: int) -> str:
    """HLO text of a module with a single collective of f32[count], for `devices` replicas."""
    opcode, size = case.collective.opcode, case.result_count(count, devices)
    pairs = ",".join(f"{{{k},{(k + 1) % devices}}}" for k in range(devices))
    return (
        f"HloModule {opcode.replace('-', '_')}, replica_count={devices}\n"
        "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }\n"
        f"ENTRY e {{ p = f32[{count}] parameter(0) "
        f"ROOT r = f32[{size}] {opcode}(p), {case.attributes.replace('PAIRS', pairs)} }}"
    )


def _by_jax(world: World, case: Case, data: Array) -> Work:
    """The collective through JAX on its CPU backend, whose processes communicate by gloo."""
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    mesh = jax.make_mesh((world.size,), ("i",), devices=jax.devices("cpu"))
    spec = PartitionSpec("i")

    def function(x: Any) -> Any:
        return case.jax(jax.lax, x, world.size)

    mapped = jax.jit(jax.shard_map(function, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False))
    array = jax.make_array_from_process_local_data(NamedSharding(mesh, spec), data)
    return lambda: mapped(array).block_until_ready()


def start_gloo(world: World) -> bool:
    """Connects JAX's processes; returns False if JAX is not installed.

    All ranks have to call this before any other use of JAX.
    """
    try:
        import jax
    except ImportError:
        return False
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    host = socket.gethostbyname(socket.gethostname())
    address = all_gather_values(world.comm, f"{host}:{port}")[0]
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, world.size, world.rank)
    return True


def _median(world: World, work: Work) -> float:
    """Median time of a call in seconds; a sample has as many calls as fill `SAMPLE_SECONDS`."""
    for _ in range(2):
        work()
    times = []
    start = time.perf_counter()
    work()
    calls = sum(all_gather_values(world.comm, max(1, int(SAMPLE_SECONDS / max(time.perf_counter() - start, 1e-7)))))
    calls = max(1, calls // world.size)
    for _ in range(SAMPLES):
        world.comm.Barrier()
        start = time.perf_counter()
        for _ in range(calls):
            work()
        times.append((time.perf_counter() - start) / calls)
    return float(np.median(np.max(all_gather_values(world.comm, times), axis=0)))


def _median_on_one_rank(world: World, work: Work) -> float:
    """Median time of a call on the first rank, while the others sleep."""
    seconds = 0.0
    if world.rank == 0:
        times = []
        for _ in range(SAMPLES + 2):
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
        seconds = float(np.median(times[2:]))
    barrier = world.comm.Ibarrier()
    while not barrier.Test():
        time.sleep(1e-3)
    return float(all_gather_values(world.comm, seconds)[0])


def fit(rows: Sequence[Row], ranks: int, limits: Limits) -> Cluster:
    """Fits a cluster with a single level to the times of hloom's ranks; `limits` are those of a rank."""
    permutes = [row for row in rows if row.opcode == CollectivePermute.opcode]
    sums = [row for row in rows if row.opcode == AllReduce.opcode]
    latency = max(min(row.ranks for row in permutes), 1e-8)
    largest = max(permutes, key=lambda row: row.size)
    bandwidth = largest.size / max(largest.ranks - latency, 1e-9)
    whole, share = max(sums, key=lambda row: row.size), (ranks - 1) / ranks
    reducing = max(whole.ranks - 2 * share * whole.size / bandwidth, 1e-9)
    level = Level("ranks", ranks, latency, bandwidth, share * whole.size / reducing)
    return Cluster(limits.flops_per_second, limits.memory.best, math.inf, (level,))
