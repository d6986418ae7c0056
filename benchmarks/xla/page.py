"""The page of results for the documentation, and the ratios that it shows."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.kept_kernels import KeptKernels
from benchmarks.measure import Result, Side
from benchmarks.report import Ratios, mean
from benchmarks.xla.modules import Listed


def _building(side: Side) -> float:
    """Seconds for reading the text and compiling."""
    return side.initialise + side.compile


RATIOS: Ratios = {
    "step, XLA / hloom": lambda r: r.xla.step / r.hloom.step,
    "read + compile, hloom / XLA": lambda r: _building(r.hloom) / _building(r.xla),
    "after `hloom warm`": lambda r: (r.hloom.initialise + r.warmed) / _building(r.xla),
    "with a full cache": lambda r: (r.hloom.initialise + r.cached) / _building(r.xla),
    "memory, hloom / XLA": lambda r: r.hloom.memory / r.xla.memory,
}


INTRODUCTION = """# XLA's own benchmarks

The modules that XLA's developers measure their CPU backend with, many of them regressions that users reported, on hloom
and on XLA (jaxlib 0.10.2). `xla/backends/cpu/benchmarks` of XLA's repository names them and holds their texts, of which
none is part of hloom. This page is generated from a run of

    python -m benchmarks.xla CHECKOUT --page docs/xla_benchmarks.md

Both sides run in turns, each in a process of its own, hloom on NumPy arrays and XLA on buffers of its device. Times
of steps are medians, reading the text and compiling begin with empty caches, with a cache that has what `hloom warm`
keeps, which is code that programs share and none of the module's own, and with a full one. {kept} Memory is the peak of
the process.
Arguments are drawn from a seed, so that results are finite; constants whose values the text leaves out have the same
random values on both sides. Results are compared. Measured on two cores (Intel Xeon, Sapphire Rapids).

![ratios of each module: step, reading and compiling with each cache, memory](xla_benchmarks.svg)
"""

_WITHOUT_CONFIGURATION = "jaxlib compiles MLIR, which lacks the configuration that XLA's backend wants of its fusions"
_WRITTEN = "the checkout lacks its text: a function of JAX with the same instructions was measured"
_PAIRWISE = (
    "biot_savart_4096_f64 biot_savart_grad_2048_f64 gravity_4096_f64 gravity_grad_2048_f64 min_distance_grad_2048_f64"
    " rbf_gradient_4096_f32 rbf_gradient_grad_2048_f32 sum_distances_grad_2048_f32"
)
NOTES = {
    "layer_norm_1x4096x768_bf16": "XLA leaves out roundings to bf16 that the module has, so that 1,270,381 of its"
    " 3,145,728 results differ from those with all roundings, and none of hloom's. In other runs its ratio was 0.73 to"
    " 1.65",
    **{f"pairwise_{name}": _WRITTEN for name in _PAIRWISE.split()},
    "xnn.parallel_dots.optimized": _WITHOUT_CONFIGURATION,
    "xnn.sequential_dots.optimized": _WITHOUT_CONFIGURATION,
}
"""Remarks on modules by name."""


def page(modules: Sequence[Listed], results: Sequence[Result], kept: KeptKernels) -> str:
    """Returns the page in Markdown; `modules` are all that XLA's lists name."""
    by_name = {result.name: result for result in results}
    lines = [
        INTRODUCTION.format(kept=kept.text()),
        f"| module | step ms | XLA's | read + compile ms | XLA's | {' | '.join(RATIOS)} |",
        "|---|" + "---|" * (4 + len(RATIOS)),
    ]
    for module in modules:
        if result := by_name.get(module.name):
            lines.append(_row(module.name, result))
    ratios = " | ".join(f"**{mean(ratio, results):.2f}**" for ratio in RATIOS.values())
    lines.append(f"| **geometric mean of {len(results)}** | | | | | {ratios} |")
    notes = [f"{result.name}: {NOTES[result.name]}" for result in results if result.name in NOTES]
    absent = [f"{module.name}: {_reason(module)}" for module in modules if module.name not in by_name]
    for title, found in (("Notes", notes), ("Modules not measured", absent)):
        lines += ["", f"## {title}", "", *(f"- {line}" for line in found)] if found else []
    return "\n".join([*lines, ""])


def _reason(module: Listed) -> str:
    if not module.path.exists():
        return "the checkout lacks its text"
    if module.name in NOTES:
        return NOTES[module.name]
    return "needs more memory than this machine has" if module.path.parent.name == "huge_hlo" else "not in this run"


def _row(name: str, result: Result) -> str:
    agreed = "" if result.agrees else f" (differs {result.difference:.2g} x the tolerance)"
    seconds = (result.hloom.step, result.xla.step, _building(result.hloom), _building(result.xla))
    times = " | ".join(f"{1e3 * each:.3g}" for each in seconds)
    return f"| {name}{agreed} | {times} | {' | '.join(f'{ratio(result):.2f}' for ratio in RATIOS.values())} |"
