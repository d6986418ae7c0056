"""Scatters that compute their updates: fusions against the interpreter, and the choice of what is computed inside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hloom as hl
from backends.cpu.kernels.run_kernel import Kernel, check
from backends.cpu.kernels.scatter.test_scatter import ADD, integers
from hloom.backends.cpu.kernels.scatter import fused_scatter, plan
from hloom.backends.cpu.pipeline import cpu_pipeline
from hloom.ops.control_flow import Fusion
from hloom.passes.fusion import scatter_updates
from hloom.passes.pipeline import run_passes

Array = np.ndarray[Any, Any]
NODES, EDGES = 60, 3000


def messages(width: int, type: str = "s32", combiner: str = ADD, value: str = "0") -> str:
    """Returns a fusion that combines rows of nodes, each times the weight of an edge, at the edge's other end."""
    return f"""HloModule m
combine {{
  a0 = {type}[] parameter(0)
  b0 = {type}[] parameter(1)
  {combiner.replace("T[]", f"{type}[]")}
}}
fused {{
  i = s32[{EDGES},1] parameter(0)
  x = {type}[{NODES},{width}] parameter(1)
  j = s32[{EDGES},1] parameter(2)
  w = {type}[{EDGES}] parameter(3)
  rows = {type}[{EDGES},{width}] gather(x, j), offset_dims={{1}}, collapsed_slice_dims={{0}}, start_index_map={{0}}, index_vector_dim=1, slice_sizes={{1,{width}}}
  weights = {type}[{EDGES},{width}] broadcast(w), dimensions={{0}}
  u = {type}[{EDGES},{width}] multiply(rows, weights)
  z = {type}[] constant({value})
  zs = {type}[{NODES},{width}] broadcast(z), dimensions={{}}
  ROOT s = {type}[{NODES},{width}] scatter(zs, i, u), update_window_dims={{1}}, inserted_window_dims={{0}}, scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=combine
}}
ENTRY e {{
  i = s32[{EDGES},1] parameter(0)
  x = {type}[{NODES},{width}] parameter(1)
  j = s32[{EDGES},1] parameter(2)
  w = {type}[{EDGES}] parameter(3)
  ROOT r = {type}[{NODES},{width}] fusion(i, x, j, w), kind=kLoop, calls=fused
}}"""


def graph(width: int, dtype: type = np.int32) -> tuple[Array, ...]:
    """Returns ends of edges, some of them no nodes, rows of nodes, starts of edges, and their weights."""
    ends, starts = (integers((EDGES, 1), low=low, high=NODES + 4) for low in (-3, 0))
    return ends, integers((NODES, width)).astype(dtype), starts, integers((EDGES,)).astype(dtype)


@pytest.mark.parametrize("is_binned", [False, True])
@pytest.mark.parametrize("width", [16, 50])
def test_messages_are_added_in_their_order(width: int, is_binned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last update of a row, taken alone, shows their order."""
    if is_binned:
        monkeypatch.setattr(plan, "MIN_BINNED_BYTES", 0)
    for combiner in (ADD, "ROOT r = T[] copy(b0)"):
        check(fused_scatter.emit, messages(width, combiner=combiner), *graph(width))
    assert (".sort(" in Kernel(fused_scatter.emit, messages(width), threads=2).text) == is_binned


@pytest.mark.parametrize(("type", "dtype"), [("f32", np.float32), ("f64", np.float64), ("s64", np.int64)])
def test_types_and_repeated_bytes(type: str, dtype: Any) -> None:
    value = "0" if type.startswith("f") else "-1"
    check(fused_scatter.emit, messages(24, type, value=value), *graph(24, dtype), threads=(2,))


PROGRAM = """HloModule m
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b) }
ENTRY e { x = f32[8192,64] parameter(0)
  i = s32[8192,1] parameter(1)
  u = f32[8192,64] exponential(x)
  z = f32[] constant(VALUE)
  zs = f32[500,64] broadcast(z), dimensions={}
  s = f32[500,64] scatter(zs, i, u), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum
  ROOT t = (f32[500,64], f32[8192,64]) tuple(s, OTHER) }"""


@pytest.mark.parametrize(("value", "other", "is_fused"), [("0", "x", True), ("0", "u", False), ("0.1", "x", False)])
def test_updates_with_other_users_stay_in_memory(value: str, other: str, is_fused: bool) -> None:
    module = hl.parse(PROGRAM.replace("VALUE", value).replace("OTHER", other))
    run_passes(module, cpu_pipeline())
    roots = [i.op.calls.root.opcode for i in module.instructions() if isinstance(i.op, Fusion)]
    assert ("scatter" in roots) == is_fused


def test_small_updates_stay_in_memory() -> None:
    module = hl.parse(PROGRAM.replace("VALUE", "0").replace("OTHER", "x").replace("8192", "512"))
    assert scatter_updates.ScatterUpdates(lambda _: True, lambda *_: True).run(module) == 0
