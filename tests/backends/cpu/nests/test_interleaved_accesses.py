"""Access patterns of vector loops: reversed, transposed and interleaved lanes, against NumPy and the interpreter."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hloom as hl
from hlo_text import arrays_for, compiled, interpreted, module_text
from hloom.loops.interleaved_accesses import store_groups
from hloom.loops.lower import lower
from hloom.loops.schedule import schedule
from hloom.target import Target

TYPES = {
    "f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16, "s8": np.int8, "pred": np.bool_,
    "c64": np.complex64,
}  # fmt: skip
SIZES = (1, 2, 3, 7, 15, 16, 31, 33, 70, 500, 5000)
SOME_SIZES = (1, 3, 15, 16, 33, 70, 5000)
each_sizes = pytest.mark.parametrize(
    "sizes", [pytest.param(SOME_SIZES, id="some"), pytest.param(SIZES, id="all", marks=pytest.mark.long)]
)
"""The lengths of loops, all in one program: below, at and above one vector or more."""


def each_type_and_size(sizes: Sequence[Any], short: Sequence[Any]) -> list[Any]:
    """Returns the types with the sizes; types other than f32 and s8 have only the sizes `short` in the default run."""
    return [
        pytest.param(type, size, marks=[] if type in ("f32", "s8") or size in short else pytest.mark.long)
        for type in TYPES
        for size in sizes
    ]


def _text(line: str) -> str:
    return f"ENTRY e {{ {line} }}"


def _integers(size: tuple[int, ...], dtype: type, below: int = 50) -> np.ndarray:
    return np.random.default_rng(sum(size)).integers(-below, below, size).astype(dtype)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("type", TYPES)
def test_reversed_elements(type: str) -> None:
    shapes, names = [f"{type}[3,{n}]" for n in SIZES], ", ".join(f"r{k}" for k in range(len(SIZES)))
    lines = [f"x{k} = {s} parameter({k}) r{k} = {s} reverse(x{k}), dimensions={{1}}" for k, s in enumerate(shapes)]
    arrays = [_integers((3, n), TYPES[type]) for n in SIZES]
    results = hl.compile(_text("\n".join([*lines, f"ROOT r = ({', '.join(shapes)}) tuple({names})"])))(*arrays)
    for found, x in zip(results, arrays, strict=True):
        assert np.array_equal(found, x[:, ::-1])


def _check_transposes(type: str, cases: Iterable[tuple[tuple[int, ...], tuple[int, ...]]]) -> None:
    """Compares transpositions of arrays of the given sizes and orders, all in one program."""
    arrays, lines, shapes, orders = [], [], [], []
    for k, (size, order) in enumerate(cases):
        arrays.append(_integers(size, TYPES[type]))
        orders.append(order)
        given, wanted, dimensions = (",".join(map(str, ints)) for ints in (size, [size[d] for d in order], order))
        shapes.append(f"{type}[{wanted}]")
        lines.append(f"x{k} = {type}[{given}] parameter({k})")
        lines.append(f"t{k} = {shapes[k]} transpose(x{k}), dimensions={{{dimensions}}}")
    names = ", ".join(f"t{k}" for k in range(len(arrays)))
    lines.append(f"ROOT r = ({', '.join(shapes)}) tuple({names})")
    for found, x, order in zip(hl.compile(_text("\n".join(lines)))(*arrays), arrays, orders, strict=True):
        assert np.array_equal(found, x.transpose(order)), (x.shape, order)


@pytest.mark.sampled(6)
@each_sizes
@pytest.mark.parametrize(("type", "planes"), each_type_and_size((2, 3, 4, 5, 8, 13, 16), short=(3, 16)))
def test_planes_to_pixels_and_back(type: str, planes: int, sizes: tuple[int, ...]) -> None:
    _check_transposes(type, [(size, (0, 2, 1)) for n in sizes for size in ((2, planes, n), (2, n, planes))])


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("type", "size"),
    each_type_and_size(
        [(40, 17, 6, 3), (16, 48, 16, 2), (5, 64, 33, 7), (32, 32, 8, 12), (3, 7, 130, 1)], short=[(5, 64, 33, 7)]
    ),
)
def test_short_runs_in_any_order(type: str, size: tuple[int, ...]) -> None:
    """Every permutation of dimensions, some of which are shorter than a cache line."""
    _check_transposes(type, [(size, order) for order in itertools.permutations(range(4))])


@pytest.mark.sampled(6)
@pytest.mark.parametrize("n", SIZES)
def test_transposes_inside_of_arithmetic(n: int) -> None:
    """Operands in both orders, one that is invariant along rows, and one that a condition guards."""
    text = f"""
      x = f32[{n},6] parameter(0)
      y = f32[6,{n}] parameter(1)
      z = f32[6] parameter(2)
      zero = f32[] constant(0)
      padded = f32[6,{n + 2}] pad(y, zero), padding=0_0x1_1
      part = f32[6,{n}] slice(padded), slice={{[0:6], [0:{n}]}}
      t = f32[6,{n}] transpose(x), dimensions={{1,0}}
      b = f32[6,{n}] broadcast(z), dimensions={{0}}
      sum = f32[6,{n}] add(t, part)
      product = f32[6,{n}] multiply(sum, b)
      back = f32[{n},6] transpose(product), dimensions={{1,0}}
      ROOT r = (f32[6,{n}], f32[{n},6]) tuple(product, back)"""
    x, y, z = _integers((n, 6), np.float32), _integers((6, n), np.float32), _integers((6,), np.float32)
    expected = (x.T + np.pad(y, ((0, 0), (1, 1)))[:, :n]) * z[:, None]
    found = hl.compile(_text(text))(x, y, z)
    assert np.array_equal(found[0], expected)
    assert np.array_equal(found[1], expected.T)


NOT_DEFINED = (("c64", "maximum"), ("pred", "add"))
REDUCTIONS = [
    pytest.param(*case.values, opcode, marks=case.marks)
    for case in each_type_and_size((2, 3, 4, 5, 8, 13, 16, 17), short=(2, 13))
    for opcode in ("add", "maximum")
    if (case.values[0], opcode) not in NOT_DEFINED
]


@pytest.mark.sampled(6)
@each_sizes
@pytest.mark.parametrize(("type", "row", "opcode"), REDUCTIONS)
def test_reductions_of_short_rows(type: str, row: int, opcode: str, sizes: tuple[int, ...]) -> None:
    """Values have exact sums in all types."""
    combiner = f"combiner {{ a = {type}[] parameter(0) b = {type}[] parameter(1) ROOT r = {type}[] {opcode}(a, b) }}\n"
    initial, lines, arrays = _integers((), TYPES[type], 4), [f"i = {type}[] parameter(0)"], []
    for k, n in enumerate(sizes):
        arrays.append(_integers((n, row), TYPES[type], 4))
        lines.append(f"""
          x{k} = {type}[{n},{row}] parameter({k + 1})
          f{k} = {type}[{n}] reduce(x{k}, i), dimensions={{1}}, to_apply=combiner
          b{k} = {type}[{n},{row}] broadcast(f{k}), dimensions={{0}}
          r{k} = {type}[{n},{row}] {opcode}(b{k}, x{k})""")
    shapes, names = (f"{type}[{n},{row}]" for n in sizes), (f"r{k}" for k in range(len(sizes)))
    lines.append(f"ROOT r = ({', '.join(shapes)}) tuple({', '.join(names)})")
    text = combiner + _text("\n".join(lines))
    expected = hl.compile(text, backend="interpreter")(initial, *arrays)
    found = hl.compile(text, backend="cpu")(initial, *arrays)
    assert all(np.array_equal(f, e) for f, e in zip(found, expected, strict=True))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("n", SIZES)
def test_argmax_of_short_rows(n: int) -> None:
    combiner = """
    larger {
      a = f32[] parameter(0) i = s32[] parameter(1) b = f32[] parameter(2) j = s32[] parameter(3)
      p = pred[] compare(a, b), direction=GE
      v = f32[] select(p, a, b)
      k = s32[] select(p, i, j)
      ROOT r = (f32[], s32[]) tuple(v, k)
    }"""
    line = f"""
      x = f32[{n},10] parameter(0)
      k = s32[{n},10] iota(), iota_dimension=1
      least = f32[] constant(-inf)
      zero = s32[] constant(0)
      ROOT r = (f32[{n}], s32[{n}]) reduce(x, k, least, zero), dimensions={{1}}, to_apply=larger"""
    x = _integers((n, 10), np.float32)
    value, index = hl.compile(combiner + _text(line))(x)
    assert np.array_equal(value, x.max(1))
    assert np.array_equal(index, x.argmax(1))


@pytest.mark.sampled(6)
@each_sizes
@pytest.mark.parametrize(("type", "pieces"), each_type_and_size((2, 3, 4, 5, 13, 16, 17), short=(4, 17)))
def test_columns_are_concatenated_to_rows(pieces: int, type: str, sizes: tuple[int, ...]) -> None:
    lines, arrays, shapes = [], [], []
    for s, n in enumerate(sizes):
        for k in range(pieces):
            column = _integers((n,), TYPES[type]) + np.asarray(k, TYPES[type])
            lines.append(f"p{s}_{k} = {type}[{n}] parameter({len(arrays)}) r{s}_{k} = {type}[{n},1] reshape(p{s}_{k})")
            arrays.append(column.astype(TYPES[type]))
        shapes.append(f"{type}[{n},{pieces}]")
        names = ", ".join(f"r{s}_{k}" for k in range(pieces))
        lines.append(f"c{s} = {shapes[-1]} concatenate({names}), dimensions={{1}}")
    lines.append(f"ROOT r = ({', '.join(shapes)}) tuple({', '.join(f'c{s}' for s in range(len(sizes)))})")
    for s, found in enumerate(hl.compile(_text("\n".join(lines)))(*arrays)):
        assert np.array_equal(found, np.stack(arrays[s * pieces : (s + 1) * pieces], 1)), sizes[s]


def test_planes_are_stored_as_one_vector() -> None:
    text = "x = u8[8,3,224,224] parameter(0) ROOT r = u8[8,224,224,3] transpose(x), dimensions={0,2,3,1}"
    kernel = lower(hl.parse(_text(text)).entry.root).kernel
    schedule(kernel, Target(vector_bytes=64, threads=1))
    (nest,) = kernel.nests
    assert nest.schedule.lanes == 128
    assert [str(store.index) for store in nest.stores] == ["150528*i0 + 3*i2" + plus for plus in ("", " + 1", " + 2")]
    (group,) = store_groups(nest, nest.loops[-1], limit=0)
    assert group.is_one_vector


def test_elements_are_grouped_by_the_type_that_they_are_read_as() -> None:
    """f16 is compared as a number, and moved as bits."""
    text = """HloModule m
ENTRY e {
  x = f16[13,1000] parameter(0)
  y = f16[13,1000] parameter(1)
  c = pred[13,1000] compare(x, x), direction=EQ
  s = f16[13,1000] select(c, x, y)
  b = s16[13,1000] bitcast-convert(s)
  zero = s16[] parameter(2)
  ROOT r = s16[6,499] reduce-window(b, zero), window={size=2x3 stride=2x2}, to_apply=sum
}
sum { a = s16[] parameter(0)
  b = s16[] parameter(1)
  ROOT r = s16[] add(a, b) }
"""
    bits = np.random.default_rng(0).integers(0, 1 << 16, (2, 13, 1000), np.uint16)
    bits[0, :, ::5] = 0x7D01  # a signalling NaN
    x, y = bits.view(np.float16)
    results = [hl.compile(text, backend)(x, y, np.int16(0)) for backend in ("cpu", "interpreter")]
    np.testing.assert_array_equal(*results)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("rows", [1, 2, 17, 100])
@pytest.mark.parametrize("elements", [1, 2, 3, 4])
@pytest.mark.parametrize("type", ["f32", "f64", "s32", "s8"])
def test_sums_beside_what_they_sum(type: str, elements: int, rows: int) -> None:
    """Sums over the elements of a record, as in distances, share these with the other results of the kernel."""
    pairs, records = f"{type}[{rows},{rows}]", f"{type}[{rows},{rows},{elements}]"
    module = hl.parse(
        module_text(
            f"""x = {type}[{rows},{elements}] parameter(0)
            z = {type}[] constant(0)
            a = {records} broadcast(x), dimensions={{0,2}}
            b = {records} broadcast(x), dimensions={{1,2}}
            apart = {records} subtract(a, b)
            parts = {records} multiply(apart, apart)
            squares = {pairs} reduce(parts, z), dimensions={{2}}, to_apply=plus
            scales = {pairs} parameter(1)
            scaled = {pairs} multiply(squares, scales)
            spread = {records} broadcast(scaled), dimensions={{0,1}}
            forces = {records} multiply(spread, apart)
            ROOT r = {type}[{rows},{elements}] reduce(forces, z), dimensions={{1}}, to_apply=plus""",
            f"plus {{\n p = {type}[] parameter(0)\n q = {type}[] parameter(1)\n ROOT s = {type}[] add(p, q)\n}}",
        )
    )
    x, scales = arrays_for(module)
    if type == "f32" and rows > 2:
        x[1], scales[-1, 0] = np.inf, np.nan
    (found,) = compiled(module, x, scales)
    (expected,) = interpreted(module, x, scales)
    largest = np.abs(expected, where=np.isfinite(expected), out=np.zeros_like(expected)).max()
    rtol = {"f32": 1e-4, "f64": 1e-12}.get(type, 0)
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol * float(largest))
