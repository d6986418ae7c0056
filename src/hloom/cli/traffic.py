"""A table of the bytes that the devices of a program send to each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hloom.ir import Module

if TYPE_CHECKING:
    from rich.console import Console


def show_traffic(console: Console, module: Module, devices: int) -> None:
    """Prints the collectives with the bytes that a device sends in each, and their sum over a run."""
    from rich.table import Table

    from hloom.analysis.traffic import traffic

    rows = traffic(module, devices // module.num_partitions)
    if not rows:
        console.print(f"{devices} devices send each other nothing", style="dim")
        return
    table = Table("collective", "devices in a group", "times", "bytes sent each time", "source", style="dim")
    for row in rows:
        times = "?" if row.times is None else f"{row.times:,}"
        source = row.instruction.metadata.get("op_name", "")
        table.add_row(f"%{row.instruction.name}", str(row.members), times, f"{row.sent:,}", str(source))
    console.print(table)
    total = sum(row.sent * (row.times or 1) for row in rows)
    unknown = ", loops of unknown length counted once" if any(row.times is None for row in rows) else ""
    console.print(f"a device sends {total:,} bytes in a run{unknown}", style="dim")
