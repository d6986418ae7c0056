"""gathered-products: products of gathered rows for each row once; sums of rows before products; masks and NaN."""

from __future__ import annotations

import re

import numpy as np
import pytest

import hloom as hl
from hlo_text import compiled, interpreted, module_text
from hloom.passes import clone_module
from hloom.passes.optimize.gathered_products import GatheredProducts
from hloom.verifier import verify_module

NODES, EDGES, WIDTH, COLUMNS = 6, 40, 16, 24
ROWS = f"""x = f32[{NODES},{WIDTH}] parameter(0)
i = s32[{EDGES},1] parameter(1)
rows = f32[{EDGES},{WIDTH}] gather(x, i), offset_dims={{1}}, collapsed_slice_dims={{0}}, start_index_map={{0}},
  index_vector_dim=1, slice_sizes={{1,{WIDTH}}}
low = s32[] constant(0)
high = s32[] constant({NODES - 1})
lows = s32[{EDGES},1] broadcast(low), dimensions={{}}
highs = s32[{EDGES},1] broadcast(high), dimensions={{}}
above = pred[{EDGES},1] compare(i, lows), direction=GE
below = pred[{EDGES},1] compare(i, highs), direction=LE
within = pred[{EDGES},1] and(above, below)
mask = pred[{EDGES}] reshape(within)
masks = pred[{EDGES},{WIDTH}] broadcast(mask), dimensions={{0}}
fill = f32[] constant(nan)
fills = f32[{EDGES},{WIDTH}] broadcast(fill), dimensions={{}}
masked = f32[{EDGES},{WIDTH}] select(masks, rows, fills)
"""
SUMS = f"""g = f32[{EDGES},{WIDTH}] parameter(0)
i = s32[{EDGES},1] parameter(1)
w = f32[{WIDTH},{2 * COLUMNS}] parameter(2)
zero = f32[] constant(0)
zeros = f32[{NODES},{COLUMNS}] broadcast(zero), dimensions={{}}
all = f32[{EDGES},{2 * COLUMNS}] dot(g, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
left = f32[{EDGES},{COLUMNS}] slice(all), slice={{[0:{EDGES}], [0:{COLUMNS}]}}
right = f32[{EDGES},{COLUMNS}] slice(all), slice={{[0:{EDGES}], [{COLUMNS}:{2 * COLUMNS}]}}
"""
ADDED = (
    "scatter(zeros, i, {0}), update_window_dims={{1}}, inserted_window_dims={{0}}, scatter_dims_to_operand_dims={{0}}, "
    "index_vector_dim=1, to_apply={1}"
)


def product(rows: str) -> hl.Module:
    """The product of gathered rows and a matrix."""
    return hl.parse(
        module_text(
            f"{ROWS}w = f32[{WIDTH},{COLUMNS}] parameter(2)\n"
            f"ROOT d = f32[{EDGES},{COLUMNS}] dot({rows}, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
        )
    )


def gradient(rows: str, is_left: bool = True) -> hl.Module:
    """The product of the columns of gathered rows and another matrix."""
    operands, sizes = (f"{rows}, g", (WIDTH, COLUMNS)) if is_left else (f"g, {rows}", (COLUMNS, WIDTH))
    return hl.parse(
        module_text(
            f"{ROWS}g = f32[{EDGES},{COLUMNS}] parameter(2)\n"
            f"ROOT d = f32[{sizes[0]},{sizes[1]}] dot({operands}), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}"
        )
    )


def sums(combiner: str = "sum") -> hl.Module:
    """Sums by number of the rows of a product, for each half of its columns."""
    halves = "".join(f"s{k} = f32[{NODES},{COLUMNS}] {ADDED.format(k, combiner)}\n" for k in ("left", "right"))
    pair = f"f32[{NODES},{COLUMNS}]"
    return hl.parse(module_text(f"{SUMS}{halves}ROOT t = ({pair}, {pair}) tuple(sleft, sright)"))


def arguments(module: hl.Module, lowest: int = 0, highest: int = NODES - 1) -> list[np.ndarray]:
    """Small integers, of which every sum is exact; no index is 2."""
    random = np.random.default_rng(0)
    x, i, w = (random.integers(-4, 5, p.shape.dimensions) for p in module.entry.parameters)
    i = random.integers(lowest, highest + 1, i.shape)
    return [x.astype(np.float32), np.where(i == 2, 3, i).astype(np.int32), w.astype(np.float32)]


def check(module: hl.Module, arrays: list[np.ndarray]) -> hl.Module:
    after = clone_module(module)
    assert GatheredProducts().run(after) >= 1
    verify_module(after)
    for want, got, native in zip(
        interpreted(module, *arrays), interpreted(after, *arrays), compiled(module, *arrays), strict=True
    ):
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(native, want)
    return after


def sides_of_dots(module: hl.Module) -> list[tuple[int, ...]]:
    return [i.operands[0].shape.dimensions for i in module.entry.instructions if i.opcode == "dot"]


MODULES = {
    "product": product("rows"),
    "masked product": product("masked"),
    "gradient": gradient("rows"),
    "masked gradient": gradient("masked"),
    "gradient, swapped": gradient("masked", is_left=False),
    "sums": sums(),
}


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("range_of_indices", [(0, NODES - 1), (-2, NODES - 1), (0, NODES + 1)])
def test_rows_are_multiplied_once(name: str, range_of_indices: tuple[int, int]) -> None:
    """Also where indices are outside: gathers clamp them, masks replace their rows, scatters skip them."""
    module = MODULES[name]
    after = check(module, arguments(module, *range_of_indices))
    assert EDGES not in {size for sides in sides_of_dots(after) for size in sides}


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_rows_that_no_index_names_take_no_part(name: str, value: float) -> None:
    module = MODULES[name]
    arrays = arguments(module)
    if name == "sums":
        arrays[2][:] = value  # the factor of a row of zeros
        arrays[0][:] = 1
    else:
        arrays[0][2] = value
    check(module, arrays)


def test_rows_side_by_side() -> None:
    """Each part of a concatenation is multiplied by its rows of the matrix."""
    lines = (
        f"e = f32[{EDGES},3] parameter(3)\n"
        f"joined = f32[{EDGES},{2 * WIDTH + 3}] concatenate(masked, e, rows), dimensions={{1}}\n"
        f"w = f32[{2 * WIDTH + 3},{COLUMNS}] parameter(2)\n"
    )
    forward = f"ROOT d = f32[{EDGES},{COLUMNS}] dot(joined, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
    module = hl.parse(module_text(ROWS + lines + forward))
    random = np.random.default_rng(1)
    x, i, w = (random.integers(-4, 5, p.shape.dimensions) for p in module.entry.parameters[:3])
    arrays = [x.astype(np.float32), np.abs(i).astype(np.int32), w.astype(np.float32)]
    arrays.append(random.integers(-4, 5, (EDGES, 3)).astype(np.float32))
    after = check(module, arrays)
    assert sorted(sides_of_dots(after)) == [(1, WIDTH), (NODES, WIDTH), (NODES, WIDTH), (EDGES, 3)]


@pytest.mark.parametrize(
    "unchanged",
    [
        sums(combiner="largest"),
        hl.parse(re.sub(rf"\b{EDGES}\b", str(NODES + 2), product("rows").to_text())),
        hl.parse(product("rows").to_text().replace("f32", "bf16")),
        hl.parse(gradient("masked").to_text().replace("nan", "0")),
    ],
    ids=["maximum", "few rows", "bf16", "masked by zero"],
)
def test_other_products_stay(unchanged: hl.Module) -> None:
    assert GatheredProducts().run(unchanged) == 0
