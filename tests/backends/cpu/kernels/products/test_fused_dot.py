"""Products with quantised weights, which are converted and scaled in registers, against sums in f64.

Bounds are those of sums of blocks of at most 512 terms, in any order (GEN-13): a term has an error of each operation
that computes it, and one of each addition on its way to the result.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hloom as hl
from backends.cpu.runtime.guarded import Side
from hloom.backends.cpu.elements.byte_tables import has_byte_tables
from hloom.backends.cpu.elements.lane_tables import codes_of_vector
from hloom.backends.cpu.kernels.products.computed import computed_operand
from hloom.backends.cpu.kernels.products.dot_instructions import are_multiplied_as_words
from hloom.backends.cpu.pipeline import cpu_pipeline
from hloom.cli.pipelines import stage_text
from hloom.ops.control_flow import Fusion
from hloom.ops.dot import Dot
from hloom.types import BY_NAME, PrimitiveType

Array = np.ndarray[Any, Any]
INTEGERS = ("s8", "u8", "s4", "u4", "s2")
FLOATS = ("f8e4m3fn", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz", "f8e4m3b11fnuz", "f8e3m4", "f4e2m1fn")
GROUP = 32
SCALES = {"none": None, "columns": (0, 1), "groups": (GROUP, 1), "blocks": (GROUP, GROUP), "64": (64, 1), "96": (96, 1)}
"""The steps of K and the columns that share a scale; 0: all."""
INTEGER_CODES = np.arange(16, dtype=np.float32).view(np.uint32)
EPSILON = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8, "f64": 2.0**-53}


BOTH_SIDES = """HloModule m
ENTRY e {
  x = u32[7,24]{1,0} parameter(0)
  b = u32[17,7,5,24]{3,2,1,0} broadcast(x), dimensions={1,3}
  ROOT d = u32[17,5]{1,0} dot(x, b), lhs_contracting_dims={0,1}, rhs_contracting_dims={1,3}
}"""


@dataclass(frozen=True)
class Case:
    """x[rows, k] times weights of k by n, stored as [k, n] or, `transposed`, as [n, k]."""

    rows: int
    k: int
    n: int
    weights: str = "s8"
    floats: str = "f32"
    scales: str = "none"
    has_zero_points: bool = False
    transposed: bool = False

    @property
    def groups(self) -> tuple[int, int]:
        """The steps of K and the columns that share a scale."""
        k, n = SCALES[self.scales] or (0, 0)
        return k or self.k, n or self.n

    def text(self) -> str:
        whole, scaled = self._sizes(self.k, self.n), self._sizes(self.k // self.groups[0], self.n // self.groups[1])
        split = [size for pair in zip(scaled, self._sizes(*self.groups)) for size in pair]
        parameters = [
            f"x = {self.floats}[{self.rows},{self.k}] parameter(0)",
            f"w = {self.weights}{whole} parameter(1)",
        ]
        lines, value = [f"c = {self.floats}{whole} convert(w)"], "c"
        for name, opcode in self._adjustments():
            parameters.append(f"{name} = {self.floats}{scaled} parameter({len(parameters)})")
            lines += [
                f"{name}.4 = {self.floats}{split} broadcast({name}), dimensions={{0,2}}",
                f"{name}.2 = {self.floats}{whole} reshape({name}.4)",
                f"{name}.r = {self.floats}{whole} {opcode}({value}, {name}.2)",
            ]
            value = f"{name}.r"
        contracted = f"lhs_contracting_dims={{1}}, rhs_contracting_dims={{{int(self.transposed)}}}"
        root = f"ROOT r = {self.floats}[{self.rows},{self.n}] dot(x, {value}), {contracted}"
        return "\n".join(["HloModule m", "ENTRY e {", *parameters, *lines, root, "}"])

    def _adjustments(self) -> list[tuple[str, str]]:
        zero_points = [("z", "subtract")] if self.has_zero_points else []
        return zero_points + ([("s", "multiply")] if self.scales != "none" else [])

    def _sizes(self, k: int, n: int) -> list[int]:
        return [n, k] if self.transposed else [k, n]

    def arguments(self) -> list[Array]:
        random, weights = np.random.default_rng(self.k * self.n), BY_NAME[self.weights]
        codes = random.integers(0, 1 << weights.bits, self._sizes(self.k, self.n), np.uint8)
        values = _decoded(codes, weights)
        # Rows and scales are so small that f16 has scaled weights and results.
        x = (random.standard_normal((self.rows, self.k)) / 64).astype(BY_NAME[self.floats].dtype)
        sizes = self._sizes(self.k // self.groups[0], self.n // self.groups[1])
        adjustments = [random.integers(1, 100, sizes).astype(x.dtype) for _ in self._adjustments()]
        if self.scales != "none":
            adjustments[-1] /= 128
        return [x, values, *adjustments]

    def expected(self, x: Array, weights: Array, *adjustments: Array) -> tuple[Array, Array]:
        """Returns the product in f64, and the largest error that sums in blocks may have."""
        wide = weights.astype(np.float64)
        for (_, opcode), array in zip(self._adjustments(), adjustments, strict=True):
            groups = self._sizes(*self.groups)
            repeated = np.repeat(np.repeat(array.astype(np.float64), groups[0], 0), groups[1], 1)
            wide = wide - repeated if opcode == "subtract" else wide * repeated
            wide = wide.astype(x.dtype).astype(np.float64)
        wide = wide.T if self.transposed else wide
        rows = x.astype(np.float64)
        additions = min(self.k, 512) + self.k // 512
        accumulator = np.finfo(np.float32 if x.dtype.itemsize < 8 else np.float64)
        exact = rows @ wide
        underflow = float(ml_dtypes.finfo(x.dtype).smallest_subnormal) / 2
        rounding = accumulator.epsneg * (np.abs(rows) @ np.abs(wide)) + float(accumulator.smallest_subnormal) / 2
        sums = (additions + 1) * rounding
        return exact, sums + EPSILON[self.floats] * np.abs(exact) + underflow


def _decoded(codes: Array, type: Any) -> Array:
    """The elements of these codes; 0 instead of those that are not finite."""
    if type.is_integer:
        return codes.astype(type.dtype)
    values = codes.view(type.dtype)
    return np.where(np.isfinite(values.astype(np.float32)), values, np.zeros((), type.dtype))


def check(case: Case, backend: str = "cpu") -> None:
    module, arguments = hl.parse(case.text()), case.arguments()
    exact, bound = case.expected(*arguments)
    (got,) = [np.asarray(hl.compile(module, backend=backend)(*arguments)).astype(np.float64)]
    assert (np.abs(got - exact) <= bound).all(), (case, np.abs(got - exact).max(), bound.min())


def is_fused(text: str) -> bool:
    module = hl.parse(text)
    cpu_pipeline().run(module)
    root = module.entry.root.op
    return isinstance(root, Fusion) and isinstance(root.calls.root.op, Dot)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("scales", SCALES)
def test_weights_of_bytes(scales: str, transposed: bool) -> None:
    case = Case(1, 192, 224, scales=scales, transposed=transposed)
    assert is_fused(case.text())
    check(case)
    check(case, "interpreter")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("rows", "k"), [(3, 515), (8, 531), (12, 531), (37, 531)])
def test_zero_points_and_odd_ends(rows: int, k: int, transposed: bool) -> None:
    check(Case(rows, k, 77, "u8", scales="columns", has_zero_points=True, transposed=transposed))


@pytest.mark.parametrize(("rows", "k", "n"), [(2, 4097, 40), (5, 2500, 77), (8, 1536, 200), (16, 1000, 33)])
def test_several_vectors_are_read_in_blocks_of_k(rows: int, k: int, n: int) -> None:
    """The blocks have sums of their own, in tiles of rows of which the last one is shorter."""
    check(Case(rows, k, n, "u8", scales="columns", has_zero_points=True, transposed=True))


@pytest.mark.parametrize(("rows", "k", "has_blocks"), [(1, 4096, False), (6, 512, False), (6, 4096, True)])
def test_blocks_of_k_fit_the_first_cache(rows: int, k: int, has_blocks: bool) -> None:
    assert (
        "memset" in stage_text(hl.parse(Case(rows, k, 1024, scales="columns", transposed=True).text()), "llvm")
    ) == has_blocks


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("weights", ["s4", "f8e4m3fn", "f8e5m2fnuz"])
def test_groups_are_narrower_than_the_vectors_of_looked_up_bytes(weights: str, transposed: bool) -> None:
    check(Case(2, 192, 160, weights, scales="groups", transposed=transposed))


def _inner_loops(text: str) -> list[str]:
    """The bodies of loops of one block in the LLVM IR of a module."""
    pattern = r"\n(loop\d+):((?:(?!\n(?:loop|after)\d+:).)*br i1 [^\n]*label %\1,)"
    return [body for _, body in re.findall(pattern, stage_text(hl.parse(text), "llvm"), re.DOTALL)]


def _with_zero_points_of_bytes(case: Case) -> str:
    """The module of a case whose zero points are u8."""
    sizes = case._sizes(case.k // GROUP, case.n)
    text = case.text().replace(f"z = {case.floats}{sizes} parameter(2)", f"zu = u8{sizes} parameter(2)")
    return text.replace("c = ", f"z = {case.floats}{sizes} convert(zu)\nc = ", 1)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("rows", "k"), [(3, 256), pytest.param(1, 77 * GROUP, id="many-groups")])
@pytest.mark.parametrize("floats", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize("weights", ["s8", "u8", "u4"])
def test_zero_points_of_bytes_are_converted_inside(
    weights: str, transposed: bool, floats: str, rows: int, k: int
) -> None:
    """Differences of bytes need no rounding in these types, but for those of s8 and u8, which bf16 does not have."""
    case = Case(rows, k, 80, weights, floats, scales="groups", has_zero_points=True, transposed=transposed)
    text = _with_zero_points_of_bytes(case)
    x, values, zero_points, scales = case.arguments()
    x, zero_points = x / 16, zero_points * 2 + 55  # f16 has the results; zero points up to 253
    result = hl.compile(text)(x, values, zero_points.astype(np.uint8), scales)
    exact, bound = case.expected(x, values, zero_points, scales)
    assert (np.abs(result.astype(np.float64) - exact) <= bound).all()
    module = hl.parse(text)
    cpu_pipeline().run(module)
    assert len(module.entry.instructions) == len(module.entry.parameters) + 1


@pytest.mark.parametrize("floats", ["f32", "bf16"])
def test_what_groups_share_is_computed_before_the_loop_over_their_elements(floats: str) -> None:
    """The loop with the multiply-adds loads zero points as floats, and finds rows at addresses without products."""
    case = Case(1, 4096, 64, "s8", floats, scales="groups", has_zero_points=True, transposed=True)
    (body,) = [body for body in _inner_loops(_with_zero_points_of_bytes(case)) if body.count("@llvm.fmuladd") >= 8]
    assert not re.search(r"[us]itofp i8 |mul i64 %\w+, 4096\b", body)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("weights", ["s8", "u4"])
@pytest.mark.parametrize("rows", [1, 8, 40])
def test_weights_of_bf16_are_computed_unless_many_rows_multiply_words(rows: int, weights: str) -> None:
    """Bytes with a scale for each column are more than half of the bytes of bf16."""
    case = Case(rows, 256, 512, weights, "bf16", scales="groups", has_zero_points=True, transposed=True)
    has_words = are_multiplied_as_words(PrimitiveType.BF16, PrimitiveType.BF16)
    assert is_fused(case.text()) == (rows <= 16 or not has_words)
    check(case)


UNPACKED = {
    "bitcast": "q = s4[{0},{1},2] bitcast-convert(p)",
    "stack": """b15 = u8[{0},{1}] broadcast(c15), dimensions={{}}
b4 = u8[{0},{1}] broadcast(c4), dimensions={{}}
l = u8[{0},{1}] and(p, b15)
h = u8[{0},{1}] shift-right-logical(p, b4)
ls = u8[{0},{1},1] reshape(l)
hs = u8[{0},{1},1] reshape(h)
q = u8[{0},{1},2] concatenate({order}), dimensions={{2}}""",
    "shifts": """b15 = u8[{0},{1},2] broadcast(c15), dimensions={{}}
b4 = u8[2] broadcast(c4), dimensions={{}}
i = u8[2] iota(), iota_dimension=0
i4 = u8[2] multiply(i, b4)
b = u8[{0},{1},2] broadcast(i4), dimensions={{2}}
b2 = u8[{0},{1},2] broadcast(p), dimensions={{0,1}}
v = u8[{0},{1},2] shift-right-logical(b2, b)
q = u8[{0},{1},2] and(v, b15)""",
}
"""Ways in which programs unpack weights of 4 bits that come as bytes, the low half first."""


def _unpacking(case: Case, form: str, is_swapped: bool = False) -> str:
    """The module of a case whose weights are unpacked from bytes."""
    rows, columns = case._sizes(case.k, case.n)
    unpacked = UNPACKED[form].format(rows, columns // 2, order="hs, ls" if is_swapped else "ls, hs")
    constants = "c15 = u8[] constant(15)\nc4 = u8[] constant(4)"
    whole = f"w = {case.weights}[{rows},{columns}] reshape(q)"
    text = case.text().replace(f"w = {case.weights}{[rows, columns]}", f"p = u8[{rows},{columns // 2}]")
    converted = f"c = {case.floats}"
    return text.replace(converted, "\n".join([constants, unpacked, whole, converted]), 1)


@pytest.mark.skipif(not has_byte_tables(), reason="codes are decoded by arithmetic")
@pytest.mark.parametrize("rows", [1, 8])
def test_scaled_codes_are_looked_up_once(rows: int) -> None:
    """LLVM would look up factors, each in a table of its own, whose products are those of the scaled codes."""
    case = Case(rows, 512, 64, "s4", scales="groups", transposed=True)
    text = stage_text(hl.parse(_unpacking(case, "bitcast")), "asm")
    assert re.search(r"vperm(ps|d)\s", text)
    assert not re.search(r"vperm(ps|d)\s.*\{1to16\}", text)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("weights", FLOATS)
def test_every_code_of_floats(weights: str, transposed: bool) -> None:
    """A row of the identity matrix selects one weight of each column, which are all codes of the type."""
    case, type = Case(1, 256, 256, weights, transposed=transposed), BY_NAME[weights]
    codes = (np.arange(256, dtype=np.uint8) & ((1 << type.bits) - 1)).view(type.dtype)
    given = np.zeros((256, 256), np.float32).astype(type.dtype)
    given[3] = codes
    x = (np.arange(256) == 3).astype(np.float32)[None]
    got = np.asarray(hl.compile(hl.parse(case.text()))(x, given.T.copy() if transposed else given))
    np.testing.assert_array_equal(got[0], codes.astype(np.float32))


@pytest.mark.skipif(
    not codes_of_vector(INTEGER_CODES), reason="codes are looked up otherwise, or decoded by arithmetic"
)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("weights", ["s4", "f4e2m1fn", "halves"])
def test_codes_are_looked_up_in_lanes(weights: str, transposed: bool) -> None:
    is_packed = weights == "halves"
    case = Case(1, 320, 256, "s4" if is_packed else weights, scales="groups", transposed=transposed)
    text = _unpacking(case, "bitcast") if is_packed else case.text()
    loops = [body for body in _inner_loops(text) if "@llvm.fmuladd" in body]
    assert loops and all("pshuf" in body for body in loops)


@pytest.mark.parametrize(("rows", "k", "scales"), [(1, 65 * 64, "64"), (3, 5120, "64"), (1, 45 * 96, "96")])
def test_groups_of_several_iterations_compute_a_table_once(rows: int, k: int, scales: str) -> None:
    """Groups of 96 are not whole in the blocks of K."""
    case = Case(rows, k, 33, "u8", scales=scales, has_zero_points=True, transposed=True)
    text = _unpacking(case, "stack")
    if has_byte_tables() and scales == "64":
        looked_up = [body for body in _inner_loops(text) if "permvar" in body]
        assert looked_up
        assert not any("arithmetic.fence" in body for body in looked_up)
    x, _, *adjustments = case.arguments()
    codes = np.random.default_rng(5).integers(0, 256, (33, k // 2), np.uint8)
    exact, bound = case.expected(x, np.stack([codes & 15, codes >> 4], -1).reshape(33, k), *adjustments)
    got = np.asarray(hl.compile(hl.parse(text))(x, codes, *adjustments))
    assert (np.abs(got - exact) <= bound).all()


@pytest.mark.sampled(6)
@pytest.mark.parametrize("sizes", [(96, 58), pytest.param((192, 160), marks=pytest.mark.long)])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    ("form", "is_swapped"), [("bitcast", False), ("stack", False), ("stack", True), ("shifts", False)]
)
def test_halves_of_bytes(form: str, is_swapped: bool, transposed: bool, sizes: tuple[int, int]) -> None:
    """Groups of 32 along K share a scale and a zero point, which may be NaN or infinite."""
    random = np.random.default_rng(3)
    weights = "s4" if form == "bitcast" else "u8"
    case = Case(2, *sizes, weights, scales="groups", has_zero_points=True, transposed=transposed)
    rows, columns = case._sizes(*sizes)
    text = _unpacking(case, form, is_swapped)
    assert is_fused(text)
    x, _, *scales = case.arguments()
    scales[0].flat[5], scales[1].flat[7] = np.inf, np.nan
    codes = random.integers(0, 256, (rows, columns // 2), np.uint8)
    halves = [codes >> 4, codes & 15] if is_swapped else [codes & 15, codes >> 4]
    values = np.stack(halves, -1).view(BY_NAME[weights].dtype).reshape(rows, columns)
    with np.errstate(invalid="ignore"):
        exact, bound = case.expected(x, values, *scales)
    finite = np.isfinite(exact)
    by_columns = text.replace("x = f32[2,", "x.t = f32[").replace("] parameter(0)", ",2] parameter(0)", 1)
    by_columns = by_columns.replace("c15 =", f"x = f32[2,{sizes[0]}] transpose(x.t), dimensions={{1,0}}\nc15 =", 1)
    for given, program in ((x, text), (x.T.copy(), by_columns)):
        got = np.asarray(hl.compile(hl.parse(program))(given, codes, *scales))
        assert (np.isfinite(got) == finite).all()
        assert finite.any() and (np.abs(got - exact) <= bound)[finite].all()


@pytest.mark.parametrize("query", ["5", "5,3"])
@pytest.mark.parametrize("weights", ["s8", "f8e4m3fn"])
def test_a_cache_of_keys_whose_heads_alternate(weights: str, query: str) -> None:
    """Scores of a query, and sums of values by scores, of 5 heads with a scale for each element of the sequence."""
    random, rows = np.random.default_rng(4), 3 if "," in query else 1
    text = f"""HloModule m
ENTRY e {{
  q = f32[{query},72] parameter(0)
  w = {weights}[203,5,72] parameter(1)
  s = f32[203,5] parameter(2)
  p = f32[{query},203] parameter(3)
  c = f32[203,5,72] convert(w)
  b = f32[203,5,72] broadcast(s), dimensions={{0,1}}
  k = f32[203,5,72] multiply(c, b)
  of = f32[{query},203] dot(q, k), lhs_batch_dims={{0}}, rhs_batch_dims={{1}}, lhs_contracting_dims={{{rows // 3 + 1}}}, rhs_contracting_dims={{2}}
  o = f32[{query},72] dot(p, k), lhs_batch_dims={{0}}, rhs_batch_dims={{1}}, lhs_contracting_dims={{{rows // 3 + 1}}}, rhs_contracting_dims={{0}}
  ROOT r = (f32[{query},203], f32[{query},72]) tuple(of, o)
}}"""
    codes = random.integers(0, 256, (203, 5, 72), np.uint8)
    w = _decoded(codes, BY_NAME[weights])
    q, s, p = (random.standard_normal(sizes, np.float32) for sizes in ((5, rows, 72), (203, 5), (5, rows, 203)))
    keys = (w.astype(np.float32) * s[:, :, None]).astype(np.float64).transpose(1, 0, 2)
    shaped = [x.reshape(*map(int, query.split(",")), -1) for x in (q, p)]
    scores, sums = hl.compile(hl.parse(text))(shaped[0], w, s, shaped[1])
    for got, left, right in ((scores, q, keys.swapaxes(1, 2)), (sums, p, keys)):
        bound = 300 * 2.0**-24 * (np.abs(left) @ np.abs(right))
        assert (np.abs(np.asarray(got).reshape(5, rows, -1) - left @ right) <= bound).all()


def test_an_operand_that_reads_no_array_is_a_matrix_in_memory() -> None:
    text = """HloModule m
ENTRY e {
  x = f32[1,256] parameter(0)
  i = s8[256,256] iota(), iota_dimension=1
  w = f32[256,256] convert(i)
  ROOT r = f32[1,256] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}"""
    want = 256.0 * np.arange(256).astype(np.int8).astype(np.float32)
    np.testing.assert_array_equal(hl.compile(text)(np.ones((1, 256), np.float32))[0], want)


def test_infinite_scales_and_nan_reach_the_columns_that_use_them_alone() -> None:
    """The lanes past the last step of K are not part of a sum, whatever the scale of the column."""
    case = Case(1, 531, 77, scales="columns", transposed=True)
    x, weights, scales = case.arguments()
    scales = scales.reshape(-1)
    scales[[5, 9]] = np.inf, np.nan
    weights[weights == 0] = 1
    got = np.asarray(hl.compile(hl.parse(case.text()))(x, weights, scales.reshape(77, 1)))
    reference = np.isfinite(x.astype(np.float64) @ (weights * scales[:, None].astype(np.float64)).T)
    assert (np.isfinite(got) == reference).all()
    assert reference.sum() == 75


@pytest.mark.long
def test_every_type_scale_and_size() -> None:
    random = np.random.default_rng(int(os.environ.get("HLOOM_SEED", "0")))
    for _ in range(int(os.environ.get("HLOOM_CASES", "2000")) // 10):
        pick = random.choice
        scales = str(pick([*SCALES]))
        units = (1, 1) if scales in ("none", "columns") else ((SCALES[scales] or (1, 1))[0], GROUP)
        k, n = (int(pick([1, 2, 3, 5, 7, 11, 16, 31, 64])) * unit for unit in units)
        case = Case(
            int(pick([1, 2, 3, 4, 5, 8, 9, 40])),
            k * int(pick([1, 7, 11])),
            n,
            str(pick([*INTEGERS, *FLOATS])),
            str(pick([*EPSILON])),
            scales,
            bool(pick([False, True])) and scales != "none",
            bool(pick([False, True])),
        )
        check(case)


def test_an_operand_that_is_computed_from_the_other_one() -> None:
    x = np.arange(168, dtype=np.uint32).reshape(7, 24)
    np.testing.assert_array_equal(hl.compile(BOTH_SIDES)(x), np.full((17, 5), (x * x).sum()))


GATHERED = """HloModule gathered
ENTRY e { x = f32[64,8] parameter(0)
  rows = s8[64,64] parameter(1)
  ids = s32[256,1] parameter(2)
  g = s8[256,64] gather(rows, ids), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,64}
  w = f32[256,64] convert(g)
  ROOT p = f32[256,8] dot(w, x), lhs_contracting_dims={1}, rhs_contracting_dims={0} }"""


def test_indices_of_gathered_weights_are_not_read_past_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of weights that no cache holds are prefetched ahead, at indices that end with their page."""
    monkeypatch.setattr(computed_operand, "L3_BYTES", 0)
    random = np.random.default_rng(1)
    x, rows = random.standard_normal((64, 8)).astype(np.float32), random.integers(-9, 9, (64, 64)).astype(np.int8)
    ids = Side(right=True).copy(random.integers(0, 64, (256, 1)).astype(np.int32))
    found = hl.compile(GATHERED)(x, rows, ids)
    np.testing.assert_allclose(found, rows[ids[:, 0]].astype(np.float32) @ x, atol=1e-3)
