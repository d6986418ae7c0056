"""Profiles as tables, plots and traces."""

from __future__ import annotations

import io
import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from hloom.errors import ArgumentError
from hloom.profiler.measured import Kernel, Measured
from hloom.scaling.chart import as_text, new_figure, save_figure

SHOWN = 25
SUFFIXES = (".svg", ".png", ".pdf", ".json")


def table(profile: Measured, shown: int = SHOWN) -> Table:
    """A table of the kernels that took most time."""
    result = Table("kernel", "kind", "runs", "us", "share", "GB/s", "GFLOP/s", "of limit", "waiting", "source")
    for column in result.columns[2:9]:
        column.justify = "right"
    slowest = sorted(profile.kernels, key=lambda kernel: -kernel.seconds)
    for kernel in slowest[:shown]:
        result.add_row(*_cells(kernel, profile))
    if len(slowest) > shown:
        rest = sum(kernel.seconds for kernel in slowest[shown:])
        result.add_row(f"{len(slowest) - shown} others", "", "", f"{1e6 * rest:.1f}", f"{rest / profile.seconds:.1%}")
    return result


def _cells(kernel: Kernel, profile: Measured) -> list[str]:
    rate = kernel.flops_per_second
    return [
        kernel.name,
        kernel.kind,
        f"{kernel.runs:g}",
        f"{1e6 * kernel.seconds:.1f}",
        f"{kernel.seconds / profile.seconds:.1%}",
        f"{kernel.bytes_per_second / 1e9:.1f}",
        "" if not rate else f"{rate / 1e9:.1f}",
        f"{kernel.share_of_limit(profile.limits):.0%}",
        f"{kernel.waiting:.0%}",
        _source(kernel),
    ]


def _source(kernel: Kernel) -> str:
    """Source of a kernel: the name of the traced operation, else its location."""
    instruction = kernel.instruction
    if instruction is None:
        return ""
    return str(instruction.metadata.get("op_name", "")) or instruction.location


def summary(profile: Measured) -> str:
    """Two lines on the program and on the machine."""
    host = sum(kernel.runs for kernel in profile.kernels if kernel.kind == "host")
    calls = f", {host:g} callbacks" if host else ""
    return (
        f"{profile.name}: {1e6 * profile.seconds:.1f} us per call, {profile.accounted:.1%} of it in "
        f"{len(profile.kernels)} kernels{calls}; the timers cost {max(0.0, profile.overhead):.1%}\n"
        f"the machine: {profile.limits}"
    )


def table_text(profile: Measured) -> str:
    """Table and summary as plain text."""
    console = Console(file=io.StringIO(), width=150, markup=False, emoji=False)
    console.print(table(profile))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue() + summary(profile)


def table_html(profile: Measured) -> str:
    """Table and summary as HTML."""
    console = Console(file=io.StringIO(), record=True, width=150, markup=False, emoji=False)
    console.print(table(profile))
    console.print(summary(profile), highlight=False)
    return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")


def save(profile: Measured, path: str) -> None:
    """Writes a plot or a trace, depending on the extension. Raises ArgumentError."""
    suffix = Path(path).suffix
    if suffix not in SUFFIXES:
        raise ArgumentError(f"a profile is saved as {', '.join(SUFFIXES)}, not as {path!r}")
    try:
        if suffix == ".json":
            Path(path).write_text(json.dumps(trace(profile)))
        else:
            _draw(profile, path)
    except OSError as error:
        raise ArgumentError(f"cannot write {path}: {error.strerror}") from None


def trace(profile: Measured) -> dict[str, object]:
    """The steps of a run in the Trace Event Format of Perfetto and chrome://tracing."""
    events = []
    for index, start, end in profile.events:
        kernel = profile.kernels[index]
        arguments = {
            "bytes": kernel.bytes,
            "flops": kernel.flops,
            "waiting": kernel.waiting,
            "source": _source(kernel),
        }
        timing = {"pid": 1, "tid": 1, "ts": 1e6 * start, "dur": 1e6 * (end - start)}
        events.append({"name": kernel.name, "cat": kernel.kind, "ph": "X", "args": arguments, **timing})
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": {"module": profile.name}}


def _draw(profile: Measured, path: str) -> None:
    """Plots the slowest kernels as bars, and all kernels on the roofline of the machine."""
    slowest = sorted(profile.kernels, key=lambda kernel: -kernel.seconds)[:SHOWN]
    kinds = list(dict.fromkeys(kernel.kind for kernel in slowest))
    colors = {kind: f"C{index % 10}" for index, kind in enumerate(kinds)}
    figure = new_figure((13, 1.6 + 0.24 * max(12, len(slowest))))
    bars, roof = figure.subplots(1, 2)
    bars.barh(
        [as_text(kernel.name[:40]) for kernel in slowest],
        [1e6 * kernel.seconds for kernel in slowest],
        color=[colors[kernel.kind] for kernel in slowest],
    )
    bars.invert_yaxis()
    bars.set_xlabel("us per call")
    bars.set_title(
        f"{as_text(profile.name)}: {1e6 * profile.seconds:.1f} us, {profile.accounted:.0%} in kernels", fontsize=10
    )
    bars.tick_params(labelsize=7)
    _draw_roofline(roof, profile, colors)
    save_figure(figure, Path(path))


def _draw_roofline(axis: object, profile: Measured, colors: dict[str, str]) -> None:
    """Plots operations per second over operations per byte; the size of a dot is the kernel's time."""
    from matplotlib.axes import Axes

    assert isinstance(axis, Axes)
    limits = profile.limits
    shown = [k for k in profile.kernels if k.flops and k.bytes and k.seconds]
    intensities = [(k.flops or 0) / k.bytes for k in shown] or [1.0]
    low, high = min([*intensities, 0.01]), max([*intensities, 100.0])
    corner = limits.flops_per_second / limits.bytes_per_second
    line = sorted([low, corner, high])
    axis.plot(line, [min(limits.flops_per_second, x * limits.bytes_per_second) / 1e9 for x in line], color="#222")
    for kernel, intensity in zip(shown, intensities):
        size = 12 + 500 * kernel.seconds / profile.seconds
        color = colors.get(kernel.kind, "#999")
        axis.scatter([intensity], [(kernel.flops_per_second or 0) / 1e9], s=size, color=color, alpha=0.7)
    for kind, color in colors.items():
        axis.scatter([], [], color=color, label=kind)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("operations per byte")
    axis.set_ylabel("GFLOP/s")
    axis.set_title("roofline: memory on the slope, arithmetic on the plateau", fontsize=10)
    axis.grid(color="#ddd")
    axis.legend(fontsize=7, frameon=False)
