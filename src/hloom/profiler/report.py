"""Profiles as tables, plots and traces."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from hloom.errors import ArgumentError, counted
from hloom.profiler.measured import Kernel, Measured
from hloom.profiler.totals import SHOWN, Total
from hloom.profiler.trace import trace
from hloom.scaling.chart import as_text, new_figure, save_figure

SUFFIXES = (".svg", ".png", ".pdf", ".json")


COLUMNS = {
    "kernel": "the instruction of the optimised module",
    "kind": "a loop nest, a copy, or the operation that has a kernel of its own",
    "runs": "runs in a call of the program",
    "us": "median time in a call, in microseconds, of calls that the system did not interrupt",
    "+-": "half the distance between the quartiles of these times",
    "share": "of the time of the call",
    "GB/s": "bytes read and written, in the fastest call",
    "GFLOP/s": "additions, multiplications, .., in the fastest call",
    "of limit": "of the machine's rate of arithmetic, or of the cache or memory that holds arrays of this size",
    "waiting": "of the time of all threads",
    "source": "the operation of the traced function, or the line",
}
"""The columns of a profile and their meanings."""


def table(profile: Measured, shown: int = SHOWN) -> Table:
    """A table of the kernels that took most time."""
    result = Table(*COLUMNS)
    for column in result.columns[2:-1]:
        column.justify = "right"
    slowest = profile.slowest
    for kernel in slowest[:shown]:
        result.add_row(*_cells(kernel, profile))
    if len(slowest) > shown:
        rest = sum(kernel.seconds for kernel in slowest[shown:])
        others = counted(len(slowest) - shown, "other")
        result.add_row(others, "", "", f"{1e6 * rest:.1f}", "", f"{rest / profile.seconds:.1%}")
    return result


def totals_table(totals: Sequence[Total], profile: Measured, by: str, shown: int) -> Table:
    """A table of totals by scope, source or opcode; scopes inside others are indented."""
    result = Table(by, "kernels", "us", "share")
    for column in result.columns[1:]:
        column.justify = "right"
    for total in totals[:shown]:
        share = f"{total.seconds / profile.seconds:.1%}"
        result.add_row(f"{'  ' * total.depth}{total.key}", f"{total.kernels}", f"{1e6 * total.seconds:.1f}", share)
    return result


def _cells(kernel: Kernel, profile: Measured) -> list[str]:
    rate = kernel.flops_per_second
    return [
        kernel.name,
        kernel.kind,
        f"{kernel.runs:g}",
        f"{1e6 * kernel.seconds:.1f}",
        f"{1e6 * kernel.spread:.1f}",
        f"{kernel.seconds / profile.seconds:.1%}",
        f"{kernel.bytes_per_second / 1e9:.1f}",
        "" if not rate else f"{rate / 1e9:.1f}",
        f"{kernel.share_of_limit(profile.limits):.0%}",
        f"{kernel.waiting:.0%}",
        kernel.scope or kernel.source,
    ]


def summary(profile: Measured) -> str:
    """Lines on the program, the calls and the machine."""
    host = sum(kernel.runs for kernel in profile.kernels if kernel.kind == "host")
    callbacks = f", {counted(round(host), 'callback')}" if host else ""
    lines = [
        f"{profile.name}: {1e6 * profile.seconds:.1f} +- {1e6 * profile.spread:.1f} us per call, "
        f"{profile.accounted:.1%} of it in {counted(len(profile.kernels), 'kernel')}{callbacks}; the timers cost "
        f"{max(0.0, profile.overhead):.1%}",
        f"medians of {counted(profile.calls, 'call')}",
        f"the machine: {profile.limits}",
    ]
    if profile.disturbed:
        lines[1] += f", without {profile.disturbed:,} from which the system took a CPU"
    return "\n".join(lines)


def as_json(profile: Measured) -> dict[str, object]:
    """All figures, in seconds, bytes and operations per second."""
    kernels = [
        {
            "name": kernel.name,
            "kind": kernel.kind,
            "seconds": kernel.seconds,
            "spread": kernel.spread,
            "runs": kernel.runs,
            "bytes": kernel.bytes,
            "flops": kernel.flops,
            "share_of_limit": kernel.share_of_limit(profile.limits),
            "waiting": kernel.waiting,
            "scope": kernel.scope,
            "source": kernel.source,
        }
        for kernel in profile.kernels
    ]
    return {
        "module": profile.name,
        "seconds": profile.seconds,
        "spread": profile.spread,
        "calls": profile.calls,
        "disturbed": profile.disturbed,
        "overhead": profile.overhead,
        "limits": asdict(profile.limits),
        "kernels": kernels,
    }


def table_text(profile: Measured) -> str:
    """Table and summary as plain text."""
    return plain_text(table(profile), summary(profile))


def plain_text(shown: Table, ending: str) -> str:
    """A table as plain text, and lines after it."""
    console = Console(file=io.StringIO(), width=150, markup=False, emoji=False)
    console.print(shown)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue() + ending


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


def _draw(profile: Measured, path: str) -> None:
    """Plots the slowest kernels as bars, and all kernels on the roofline of the machine."""
    slowest = profile.slowest[:SHOWN]
    kinds = list(dict.fromkeys(kernel.kind for kernel in slowest))
    colors = {kind: f"C{index % 10}" for index, kind in enumerate(kinds)}
    figure = new_figure((13, 1.6 + 0.24 * max(12, len(slowest))))
    bars, roof = figure.subplots(1, 2)
    bars.barh(
        [as_text(kernel.name[:40]) for kernel in slowest],
        [1e6 * kernel.seconds for kernel in slowest],
        xerr=[1e6 * kernel.spread for kernel in slowest],
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
    """Plots operations per second over operations per byte; the size of a dot is the kernel's time.

    There is a roof for memory, and one for the fastest cache that a kernel's arrays fit.
    """
    from matplotlib.axes import Axes

    assert isinstance(axis, Axes)
    limits = profile.limits
    shown = [k for k in profile.kernels if k.flops and k.bytes and k.seconds]
    intensities = [(k.flops or 0) / k.bytes for k in shown] or [1.0]
    low, high = min([*intensities, 0.01]), max([*intensities, 100.0])
    for size, style in ((limits.memory.size, "-"), (min((k.bytes for k in shown), default=0), ":")):
        rate = limits.bytes_per_second(size)
        line = sorted([low, limits.flops_per_second / rate, high])
        roof = [min(limits.flops_per_second, x * rate) / 1e9 for x in line]
        name = "memory" if style == "-" else "cache"
        axis.plot(line, roof, style, color="#222", label=f"{name}, {rate / 1e9:.0f} GB/s")
    for kernel, intensity in zip(shown, intensities):
        size_of_dot = 12 + 500 * kernel.seconds / profile.seconds
        color = colors.get(kernel.kind, "#999")
        axis.scatter([intensity], [(kernel.flops_per_second or 0) / 1e9], s=size_of_dot, color=color, alpha=0.7)
    for kind, color in colors.items():
        axis.scatter([], [], color=color, label=kind)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("operations per byte")
    axis.set_ylabel("GFLOP/s")
    axis.set_title("roofline: memory on the slope, arithmetic on the plateau", fontsize=10)
    axis.grid(color="#ddd")
    axis.legend(fontsize=7, frameon=False)
