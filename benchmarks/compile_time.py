"""`python -m benchmarks.compile_time`: compile time per instruction, for programs of different lengths.

With `--families`, the time per item for programs that are long in one respect each (`families.py`).

The program is a stack of layers, each a product, an activation and a normalisation with its own weights. As equal
kernels are compiled once, the times are mainly those of passes, buffer assignment and steps rather than of LLVM.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Sequence
from pathlib import Path

import click

from benchmarks.families import FLAT, NESTED, Family

_HEAD = """HloModule layers
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
ENTRY main {
  x0 = f32[32,64] parameter(0)
"""
_LAYER = """  w{i} = f32[64,64] parameter({weights})
  b{i} = f32[64] parameter({bias})
  dot{i} = f32[32,64] dot(x{i}, w{i}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  biases{i} = f32[32,64] broadcast(b{i}), dimensions={{1}}
  a{i} = f32[32,64] add(dot{i}, biases{i})
  half{i} = f32[] constant(0.5)
  halves{i} = f32[32,64] broadcast(half{i}), dimensions={{}}
  scaled{i} = f32[32,64] multiply(a{i}, halves{i})
  t{i} = f32[32,64] tanh(scaled{i})
  g{i} = f32[32,64] multiply(a{i}, t{i})
  y{i} = f32[32,64] add(x{i}, g{i})
  zero{i} = f32[] constant(0)
  total{i} = f32[32] reduce(y{i}, zero{i}), dimensions={{1}}, to_apply=sum
  n{i} = f32[] constant(64)
  ns{i} = f32[32] broadcast(n{i}), dimensions={{}}
  mean{i} = f32[32] divide(total{i}, ns{i})
  means{i} = f32[32,64] broadcast(mean{i}), dimensions={{0}}
  c{i} = f32[32,64] subtract(y{i}, means{i})
  squares{i} = f32[32,64] multiply(c{i}, c{i})
  variance{i} = f32[32] reduce(squares{i}, zero{i}), dimensions={{1}}, to_apply=sum
  r{i} = f32[32] rsqrt(variance{i})
  rs{i} = f32[32,64] broadcast(r{i}), dimensions={{0}}
  x{next} = f32[32,64] multiply(c{i}, rs{i})
"""
_LAYER_LENGTH = _LAYER.count(" = ")
MAX_LEVELS = 60
STAGES = ("read", "passes", "program and machine code")


def layers(instructions: int) -> str:
    """Returns the text of a program of about `instructions` instructions."""
    count = max(1, instructions // _LAYER_LENGTH)
    texts = [_LAYER.format(i=i, next=i + 1, weights=2 * i + 1, bias=2 * i + 2) for i in range(count)]
    return f"{_HEAD}{''.join(texts)}  ROOT result = f32[32,64] copy(x{count})\n}}\n"


def measure(instructions: int) -> list[float]:
    """Returns the microseconds per instruction of the stages: reading the text, passes, the rest of the compilation."""
    import hloom as hl
    from hloom.backends.cpu.compiler import compile_module
    from hloom.backends.cpu.pipeline import Topology, cpu_pipeline
    from hloom.passes import clone_module, run_passes
    from hloom.system.garbage import older_objects_frozen

    started = time.perf_counter()
    module = hl.parse(layers(instructions))
    read = time.perf_counter() - started
    copy = clone_module(module)
    gc.collect()
    with older_objects_frozen():
        started = time.perf_counter()
        run_passes(copy, cpu_pipeline(Topology.SINGLE))
        passes = time.perf_counter() - started
    del copy
    gc.collect()
    started = time.perf_counter()
    compile_module(module, topology=Topology.SINGLE)
    rest = time.perf_counter() - started - passes
    count = sum(1 for _ in module.instructions())
    return [1e6 * seconds / count for seconds in (read, passes, rest)]


def measure_family(family: Family, size: int) -> float:
    """Returns the microseconds per item for reading and compiling."""
    import hloom as hl

    text = family(size)
    gc.collect()
    started = time.perf_counter()
    hl.compile(hl.parse(text))
    return 1e6 * (time.perf_counter() - started) / size


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("sizes", nargs=-1, type=click.IntRange(1, 1_000_000))
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the times: .svg, .png or .pdf.")
@click.option("--families", is_flag=True, help="Programs with SIZES items of one kind (by default 100, 1000, 10000).")
def main(sizes: tuple[int, ...], plot: Path | None, families: bool) -> None:
    """Compile times by number of instructions (by default 1000, 10000 and 100000), without the cache on disk."""
    os.environ["HLOOM_CACHE_DIR"] = ""
    measure(100)  # warm-up: the first compilation loads modules
    if families:
        _families(sizes or (100, 1_000, 10_000), plot)
        return
    sizes = sizes or (1_000, 10_000, 100_000)
    found = [measure(size) for size in sizes]
    _print_table("instructions", sizes, [f"{stage}, us per instruction" for stage in STAGES], found)
    if plot is not None:
        draw(sizes, found, plot)


def _families(sizes: tuple[int, ...], plot: Path | None) -> None:
    levels = [round(MAX_LEVELS * (k + 1) / len(sizes)) for k in range(len(sizes))]
    flat = {name: [(n, measure_family(family, n)) for n in sizes] for name, family in FLAT.items()}
    nested = {name: [(n, measure_family(family, n)) for n in levels] for name, family in NESTED.items()}
    for title, found, counts in (("items", flat, sizes), ("levels", nested, levels)):
        rows = [[dict(points)[n] for points in found.values()] for n in counts]
        _print_table(title, counts, [f"{name}, us" for name in found], rows)
    if plot is not None:
        draw_families(flat, nested, plot)


def _print_table(title: str, sizes: Sequence[int], columns: Sequence[str], found: Sequence[Sequence[float]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title, *columns)
    for size, times in zip(sizes, found, strict=True):
        table.add_row(str(size), *(f"{value:.0f}" for value in times))
    Console().print(table)


Points = dict[str, list[tuple[int, float]]]
"""Family name -> pairs of a number of items and microseconds per item."""


def draw_families(flat: Points, nested: Points, path: Path) -> None:
    """Plots microseconds per item by the number of items: side by side on the left, nested on the right."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 4))
    for axis, found, words in ((axes[0], flat, "items side by side"), (axes[1], nested, "levels inside of each other")):
        for name, points in found.items():
            axis.plot(*zip(*points, strict=True), "o-", label=name.replace("_", " "))
        axis.set_yscale("log")
        axis.set_xlabel(words)
        axis.set_ylabel("us an item")
        axis.grid(color="#ddd")
        axis.legend(frameon=False, fontsize=7)
    axes[0].set_xscale("log")
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def draw(sizes: Sequence[int], found: Sequence[Sequence[float]], path: Path) -> None:
    """Plots microseconds per instruction by program length; horizontal lines are linear time."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(7, 3.6))
    for stage, color, column in zip(STAGES, ("#4c78a8", "#c8553d", "#2a7f62"), zip(*found, strict=True), strict=True):
        axis.plot(sizes, column, "o-", color=color, label=stage)
    axis.set_xscale("log")
    axis.set_ylim(bottom=0)
    axis.set_xlabel("instructions of the program")
    axis.set_ylabel("us per instruction")
    axis.set_title("Compile time is in proportion to the program", fontsize=10)
    axis.grid(color="#ddd")
    axis.legend(frameon=False, fontsize=9)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


if __name__ == "__main__":
    main()
