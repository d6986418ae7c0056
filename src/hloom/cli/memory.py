"""`hloom show --memory`: lists the live values at the peak memory use of a module's entry."""

from __future__ import annotations

from hloom.cli.output import print_table, terminal
from hloom.ir import Module

SHOWN = 20


def show_memory(module: Module, is_shown: bool = True) -> dict[str, object]:
    """Prints the live values at the peak, for the instruction order of the module; returns the figures."""
    from rich.table import Table

    from hloom.passes.optimize.memory_scheduler import memory_use

    use = memory_use(module.entry)
    parameters = sum(parameter.shape.byte_size for parameter in module.entry.parameters if parameter.shape.is_static)
    where = module.entry.instructions[use.peak].name
    figures: dict[str, object] = {
        "peak_bytes": use.bytes[use.peak],
        "after": where,
        "parameter_bytes": parameters,
        "live": [{"name": i.name, "shape": str(i.shape), "bytes": i.shape.byte_size} for i in use.live],
    }
    if not is_shown:
        return figures
    table = Table("value", "shape", "bytes")
    table.columns[2].justify = "right"
    for instruction in use.live[:SHOWN]:
        table.add_row(f"%{instruction.name}", str(instruction.shape), f"{instruction.shape.byte_size:,}")
    rest = use.live[SHOWN:]
    if rest:
        table.add_row(f"{len(rest)} others", "", f"{sum(i.shape.byte_size for i in rest):,}")
    console = terminal(highlight=False)
    print_table(console, table)
    peak = f"{use.bytes[use.peak]:,} bytes at the peak after %{where}"
    console.print(f"{peak}, beside {parameters:,} of parameters")
    return figures
