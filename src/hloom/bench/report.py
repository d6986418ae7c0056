"""Results of a benchmark as a table and as JSON."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from hloom.bench.limits import Limits
from hloom.bench.machine import describe_machine, versions
from hloom.bench.measure import Result, Settings, Times


def table(results: Sequence[Result], limits: Limits) -> Table:
    """A table with a row for each workload."""
    shown = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    shown.add_column("\nworkload", no_wrap=True)
    for heading in (
        "hloom\nms", "XLA\nms", "XLA/\nhloom", "compile\nhloom ms", "\ncached", "\nXLA ms", "XLA/\nhloom",
        "hloom\nGB/s   (%)", "\nGFLOP/s   (%)",
    ):  # fmt: skip
        shown.add_column(heading, justify="right", no_wrap=True)
    for result in results:
        shown.add_row(result.workload, *_cells(result, limits))
    return shown


def _cells(result: Result, limits: Limits) -> list[str | Text]:
    ours, theirs = _ran(result.hloom), _ran(result.peer)
    seconds, shortest = (ours.median, ours.shortest) if ours else (math.nan, math.nan)
    flops = math.nan if result.flop_count is None else result.flop_count / shortest
    return [
        _milliseconds(seconds),
        _milliseconds(theirs.median if theirs else math.nan),
        _ratio(result.ratio) if result.status == "ok" else Text(result.status, "bold red"),
        _milliseconds(result.hloom.compiling if result.hloom else math.nan),
        _milliseconds((result.hloom and result.hloom.compiling_again) or math.nan),
        _milliseconds(result.peer.compiling if result.peer else math.nan),
        _ratio(result.compile_ratio),
        _rate(result.byte_count / shortest, limits.bytes_per_second(result.byte_count)),
        _rate(flops, limits.flops_per_second),
    ]


def _ran(times: Times | None) -> Times | None:
    return times if times and times.samples else None


def _milliseconds(seconds: float) -> str:
    return figures(1e3 * seconds)


def _ratio(ratio: float | None) -> Text:
    return Text("-") if ratio is None else Text(figures(ratio), "green" if ratio >= 1 else "yellow")


def _rate(rate: float, limit: float) -> str:
    return "-" if math.isnan(rate) else f"{rate / 1e9:.2f} {f'({100 * rate / limit:.0f})':>5}"


def figures(number: float) -> str:
    """Formats a number with three significant digits and no exponent; "-" for NaN."""
    if math.isnan(number):
        return "-"
    if number == 0:
        return "0"
    return f"{number:.{min(6, max(0, 2 - math.floor(math.log10(abs(number)))))}f}"


def notes(results: Sequence[Result]) -> list[str]:
    """A line for each problem of a workload, of hloom or the peer."""
    lines = [f"{r.workload} {r.status}: {r.message}" for r in results if r.status != "ok"]
    return lines + [f"{r.workload} has no times of XLA: {r.peer_problem}" for r in results if r.peer_problem]


def summary(results: Sequence[Result]) -> str:
    """The geometric mean of the ratios in a sentence; "" without ratios."""
    ratios = [r.ratio for r in results if r.ratio is not None]
    if not ratios:
        return ""
    mean, slower = figures(statistics.geometric_mean(ratios)), sum(ratio < 1 for ratio in ratios)
    counts = f"{len(ratios)} of {len(results)} workloads, {slower} slower than XLA"
    return f"XLA/hloom: geometric mean {mean} over {counts}"


def as_json(results: Sequence[Result], limits: Limits, settings: Settings) -> dict[str, Any]:
    """All measurements, including the times of all samples."""
    ratios = [r.ratio for r in results if r.ratio is not None]
    return {
        "machine": describe_machine(),
        "limits": asdict(limits),
        "versions": versions(),
        "settings": asdict(settings),
        "workloads": [{**asdict(r), "ratio": r.ratio, "compile_ratio": r.compile_ratio} for r in results],
        "geometric_mean": statistics.geometric_mean(ratios) if ratios else None,
    }
