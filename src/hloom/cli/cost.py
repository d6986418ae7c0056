"""`hloom show --cost`: counts operations and bytes, and predicts the time of a step on a cluster (`--cluster`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hloom.analysis.flops import bytes_of, count_flops, count_flops_of
from hloom.cli.output import print_table, terminal
from hloom.errors import ArgumentError, counted
from hloom.ir import Module
from hloom.ops.traits import Structural

if TYPE_CHECKING:
    from hloom.scaling.cluster import Cluster
    from hloom.scaling.predict import Prediction

MAX_ROWS = 20


def show_counts(module: Module, is_shown: bool = True) -> dict[str, object]:
    """Prints the operations and bytes of the entry's instructions, the most expensive first; returns those of all."""
    from rich.table import Table

    console = terminal(highlight=False)
    working = [i for i in module.entry.instructions if not isinstance(i.op, Structural)]
    rows = [(count_flops_of(i), bytes_of(i), i) for i in working]
    rows.sort(key=lambda row: (-(row[0] or 0), -row[1]))
    flops_of_all, total = count_flops(module), sum(size for _, size, _ in rows)
    found = [{"name": i.name, "opcode": i.opcode, "flops": flops, "bytes": size} for flops, size, i in rows]
    figures: dict[str, object] = {"flops": flops_of_all, "bytes": total, "instructions": found}
    if not is_shown:
        return figures
    table = Table("instruction", "opcode", "operations", "bytes", "operations per byte")
    for column in table.columns[2:]:
        column.justify = "right"
    for flops, size, instruction in rows[:MAX_ROWS]:
        each = "" if flops is None or not size else f"{flops / size:.3g}"
        table.add_row(f"%{instruction.name}", instruction.opcode, _counted(flops), f"{size:,}", each)
    print_table(console, table)
    if len(rows) > MAX_ROWS:
        console.print(f".. and {len(rows) - MAX_ROWS} cheaper ones")
    console.print(f"a run: {_counted(flops_of_all)} operations, {total:,} bytes, before optimisation")
    return figures


def _counted(flops: int | None) -> str:
    return "unknown" if flops is None else f"{flops:,}"


def show_cost(
    module: Module, devices: int | None, cluster_path: Path, plot_path: Path | None, is_shown: bool = True
) -> dict[str, object]:
    """Prints and plots the predicted time of a step with its parts, the bytes sent, and the memory per device; returns
    these figures.
    """
    from hloom.scaling.cluster import load_cluster
    from hloom.scaling.predict import predict

    cluster = load_cluster(cluster_path)
    module, count = _for_devices(module, devices, cluster)
    prediction = predict(module, module.replica_count, cluster)
    if is_shown:
        _show_prediction(prediction, count, cluster)
    if plot_path is not None:
        from hloom.scaling.chart import draw

        draw(prediction, f"{module.name} on {count} devices: {readable(prediction.seconds)} a step", plot_path)
    return {
        "devices": count,
        "seconds": prediction.seconds,
        "collective_seconds": prediction.seconds_of(collectives=True),
        "peak_bytes": prediction.peak_bytes,
        "parts": [
            {
                "name": part.instruction.name,
                "opcode": part.instruction.opcode,
                "times": part.times,
                "seconds": part.seconds,
                "bytes_sent": part.sent,
            }
            for part in prediction.parts
        ],
    }


def _for_devices(module: Module, devices: int | None, cluster: Cluster) -> tuple[Module, int]:
    """The program of one device, and the number of devices. Raises ArgumentError if they do not fit the cluster."""
    from hloom.passes import clone_module
    from hloom.passes.spmd.partitioner import partition

    count = module.replica_count * module.num_partitions if devices is None else devices
    if count > cluster.device_count:
        raise ArgumentError(f"the cluster has {counted(cluster.device_count, 'device')}, not {count}")
    if module.num_partitions == 1 and count != module.replica_count:
        if count % module.replica_count:
            raise ArgumentError(f"{count} devices are not a multiple of the {module.replica_count} replicas")
        module = partition(clone_module(module), count // module.replica_count).module
    if count != module.replica_count * module.num_partitions:
        made_for = f"{module.replica_count} replicas of {module.num_partitions} partitions"
        raise ArgumentError(f"the module is made for {made_for}, not for {count} devices")
    return module, count


def _show_prediction(prediction: Prediction, count: int, cluster: Cluster) -> None:
    from rich.table import Table

    console = terminal(highlight=False)
    table = Table("part", "kind", "times", "time", "bytes sent", "by")
    for part in prediction.parts[:MAX_ROWS]:
        source = str(part.instruction.metadata.get("op_name", ""))
        name = f"%{part.instruction.name}" + (f"\n  {source}" if source else "")
        table.add_row(
            name, part.instruction.opcode, f"{part.times:,}", readable(part.seconds), f"{part.sent:,}", part.algorithm
        )
    print_table(console, table)
    rest = len(prediction.parts) - MAX_ROWS
    if rest > 0:
        console.print(f".. and {rest} shorter ones")
    sent = sum(part.sent for part in prediction.parts)
    unknown = "; loops of unknown length counted once" if prediction.has_unknown_loops else ""
    together, collectives = readable(prediction.seconds), readable(prediction.seconds_of(collectives=True))
    console.print(
        f"a step on {counted(count, 'device')}: {together}, with {collectives} in collectives; "
        f"a device sends {sent:,} bytes and holds {prediction.peak_bytes:,} at most{unknown}",
        soft_wrap=True,
    )
    if prediction.peak_bytes > cluster.memory_bytes:
        console.print(f"a device has {cluster.memory_bytes:,.0f} bytes: too few", style="red")


def readable(seconds: float) -> str:
    """Formats a time in s, ms, us or ns."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
