"""Fusion: the expected entry is a list of opcodes, with those inside fusions in brackets."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hlo_text import SOFTMAX, arrays_for, interpreted, module_text
from hloom.loops.lower import can_lower
from hloom.passes import clone_module
from hloom.passes.fusion.dot_operands import DotOperands, stride_of
from hloom.passes.fusion.fusion import FusionPass, reasons
from hloom.verifier import verify_module
from passes.modules import difference

XY = "x = f32[64,32] parameter(0)\ny = f32[64,32] parameter(1)\n"
Z = "zero = f32[] constant(0)\n"
ROWS = "f32[64] reduce(a, zero), dimensions={1}, to_apply=sum\n"
COLUMNS = "f32[32] reduce(a, zero), dimensions={0}, to_apply=sum\n"


def fused(entry: str, **options: int) -> list[str]:
    """The entry after fusion, which is checked to leave a valid module with the same results."""
    before = hl.parse(module_text(entry))
    after = clone_module(before)
    FusionPass(can_fuse=lambda i: can_lower(i, lambda *_: True), **options).run(after)
    verify_module(after)
    arrays = arrays_for(before)
    assert difference(interpreted(before, *arrays), interpreted(after, *arrays)) is None
    return [summary(i) for i in after.entry.instructions if i.opcode != "parameter"]


def test_fusions_with_several_results_keep_the_order_of_effects() -> None:
    """SEND-3: the send comes before the recv-done, though one fusion could make what is sent and use what comes."""
    text = module_text(
        """i = f32[64] iota(), iota_dimension=0
        t = token[] after-all()
        r = (f32[64], u32[], token[]) recv(t), channel_id=1
        s = (f32[64], u32[], token[]) send(i, t), channel_id=1
        d = (f32[64], token[]) recv-done(r), channel_id=1
        e = token[] send-done(s), channel_id=1
        v = f32[64] get-tuple-element(d), index=0
        ROOT a = f32[64] add(i, v)"""
    )
    assert hl.compile(text, timeout=5.0)().tolist() == [2 * k for k in range(64)]


def summary(instruction: hl.Instruction) -> str:
    """`fusion[add negate]`, or the opcode."""
    if instruction.opcode != "fusion":
        return instruction.opcode
    (computation,) = instruction.op.computations
    return f"fusion[{' '.join(i.opcode for i in computation.instructions if i.opcode != 'parameter')}]"


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        # A chain becomes one fusion; a single instruction needs none.
        (XY + "a = f32[64,32] add(x, y)\nb = f32[64,32] sine(a)\nROOT r = f32[64,32] multiply(b, x)",
         ["fusion[add sine multiply]"]),
        (XY + "ROOT r = f32[64,32] add(x, y)", ["add"]),
        # Constants and broadcasts of constants are never stored.
        (XY + Z + "a = f32[64,32] broadcast(zero), dimensions={}\nROOT r = f32[64,32] add(x, a)",
         ["fusion[constant broadcast add]"]),
        # A value with several users in one fusion is computed once inside it.
        (XY + "a = f32[64,32] sine(x)\nb = f32[64,32] negate(a)\nROOT r = f32[64,32] multiply(a, b)",
         ["fusion[sine negate multiply]"]),
        # Cheap values are computed in each fusion that reads them, costly ones are stored.
        (XY + "a = f32[64,32] negate(x)\nb = f32[32,64] transpose(a), dimensions={1,0}\n"
         "c = f32[64,32] add(a, y)\nROOT r = (f32[32,64], f32[64,32]) tuple(b, c)",
         ["fusion[negate transpose]", "fusion[negate add]", "tuple"]),
        (XY + "a = f32[64,32] sine(x)\nb = f32[32,64] transpose(a), dimensions={1,0}\n"
         "c = f32[64,32] add(a, y)\nROOT r = (f32[32,64], f32[64,32]) tuple(b, c)",
         ["fusion[sine add tuple]", "get-tuple-element", "get-tuple-element", "transpose", "tuple"]),
        # A value that many elements read is not computed for each of them.
        ("x = f32[32] parameter(0)\na = f32[32] sine(x)\nb = f32[64,32] broadcast(a), dimensions={1}\n"
         "ROOT r = f32[64,32] negate(b)", ["sine", "fusion[broadcast negate]"]),
        ("x = f32[64] parameter(0)\na = f32[64] sine(x)\nb = f32[64,32] broadcast(a), dimensions={0}\n"
         "ROOT r = f32[64,32] negate(b)", ["fusion[sine broadcast negate]"]),
    ],
)  # fmt: skip
def test_elementwise(entry: str, expected: list[str]) -> None:
    assert sorted(fused(entry)) == sorted(expected)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        # Reductions are fused with their producers.
        (XY + Z + "a = f32[64,32] multiply(x, y)\nROOT r = " + ROWS, ["fusion[constant multiply reduce]"]),
        (XY + Z + "a = f32[64,32] multiply(x, y)\nROOT r = " + COLUMNS, ["fusion[constant multiply reduce]"]),
        # Sums of rows are fused with their consumers, too ..
        (XY + Z + "a = f32[64,32] multiply(x, y)\ns = " + ROWS +
         "b = f32[64,32] broadcast(s), dimensions={0}\nROOT r = f32[64,32] subtract(a, b)",
         ["fusion[constant multiply reduce broadcast subtract]"]),
        (SOFTMAX.replace("ROWS", "64").replace("COLUMNS", "32"),
         ["fusion[constant constant reduce broadcast subtract exponential reduce broadcast divide]"]),
        # .. sums of columns end before they are read.
        (XY + Z + "a = f32[64,32] multiply(x, y)\ns = " + COLUMNS +
         "b = f32[64,32] broadcast(s), dimensions={1}\nROOT r = f32[64,32] subtract(a, b)",
         ["fusion[constant multiply reduce]", "fusion[multiply broadcast subtract]"]),
        # .. and the next sum of columns is fused with their consumers and its own.
        (XY + Z + "s = f32[32] reduce(x, zero), dimensions={0}, to_apply=sum\n"
         "b = f32[64,32] broadcast(s), dimensions={1}\na = f32[64,32] subtract(x, b)\nt = " + COLUMNS +
         "ROOT r = f32[32] sine(t)", ["fusion[constant reduce]", "fusion[constant broadcast subtract reduce sine]"]),
        # A sum of sums is one fusion if the outer one runs along the inner one's rows.
        (XY + Z + "a = f32[64,32] negate(x)\ns = " + ROWS +
         "ROOT r = f32[] reduce(s, zero), dimensions={0}, to_apply=sum", ["fusion[constant negate reduce reduce]"]),
    ],
)  # fmt: skip
def test_reductions(entry: str, expected: list[str]) -> None:
    assert [" ".join(sorted(s.split())) for s in fused(entry)] == [" ".join(sorted(s.split())) for s in expected]


UPDATE = (
    "x = f32[64,32] parameter(0)\nu = f32[1,32] parameter(1)\nk = s32[] parameter(2)\nnone = s32[] constant(0)\n"
    "a = f32[1,32] sine(u)\n"
)


@pytest.mark.parametrize(
    ("sizes", "kept", "along"),
    [("1,64,32", "0,1", "0,1"), ("64,1,32", "0", "0"), ("1,1,64,32", "2", "2"), ("64,32,1", "0", "0")],
)
def test_dimensions_of_size_1_do_not_matter_for_rows(sizes: str, kept: str, along: str) -> None:
    """Sums of rows are computed where they are used if the batch is one."""
    lengths = sizes.split(",")
    reduced = ",".join(str(d) for d in range(len(lengths)) if str(d) not in kept.split(","))
    row = ",".join(lengths[int(d)] for d in kept.split(","))
    entry = (
        f"x = f32[{sizes}] parameter(0)\n{Z}a = f32[{sizes}] sine(x)\n"
        f"s = f32[{row}] reduce(a, zero), dimensions={{{reduced}}}, to_apply=sum\n"
        f"b = f32[{sizes}] broadcast(s), dimensions={{{along}}}\nROOT r = f32[{sizes}] divide(a, b)"
    )
    assert fused(entry) == ["fusion[constant sine reduce broadcast divide]"]


def test_an_update_of_a_slice_ends_a_fusion() -> None:
    update = "dynamic-update-slice(x, a, k, none)"
    assert fused(UPDATE + f"ROOT r = f32[64,32] {update}") == ["fusion[constant sine dynamic-update-slice]"]
    found = fused(UPDATE + f"b = f32[64,32] {update}\nROOT r = f32[64,32] negate(b)")
    assert found == ["fusion[constant sine dynamic-update-slice]", "negate"]
    computed = UPDATE.replace("a =", "m = f32[64,32] negate(x)\na =")
    found = fused(computed + "ROOT r = f32[64,32] dynamic-update-slice(m, a, k, none)")
    assert found == ["negate", "fusion[constant sine dynamic-update-slice]"], "what is changed in place is in memory"


@pytest.mark.parametrize(("rows", "expected"), [(64, 2), (8, 1)], ids=["large", "small"])
def test_rows_are_not_read_before_and_after_an_update_in_one_kernel(rows: int, expected: int) -> None:
    """A single kernel would need a copy of the array; a small array is copied in less time than a kernel takes."""
    entry = UPDATE.replace("64,32", f"{rows},32") + (
        f"b = f32[{rows},32] dynamic-update-slice(x, a, k, none)\n"
        "old = f32[1,32] dynamic-slice(x, none, none), dynamic_slice_sizes={1,32}\nm = f32[1,32] multiply(old, u)\n"
        "new = f32[1,32] dynamic-slice(b, none, k), dynamic_slice_sizes={1,32}\n"
        f"s = f32[1,32] add(new, m)\nROOT r = (f32[1,32], f32[{rows},32]) tuple(s, b)"
    )
    assert sum("slice" in kernel and "update" not in kernel for kernel in fused(entry)) == expected


SCAN = """y = f32[4,1,32] parameter(0)
w = f32[32,32] parameter(1)
k = s32[] parameter(2)
none = s32[] constant(0)
p = f32[32,32] dot(w, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
row = f32[1,32] slice(p), slice={[0:1], [0:32]}
t = f32[1,32] tanh(row)
part = f32[1,1,32] reshape(t)
"""
BOTH = "b = f32[4,1,32] dynamic-update-slice(y, part, k, none, none)\n"


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        ("ROOT r = (f32[1,32], f32[4,1,32]) tuple(t, b)", "slice tanh reshape"),
        ("u = f32[1,32] exponential(t)\nROOT r = (f32[1,32], f32[4,1,32], f32[1,32]) tuple(t, b, u)", "exponential"),
        # The array is read besides, or the part is not of the stored elements.
        ("s = f32[4,1,32] negate(y)\nROOT r = (f32[1,32], f32[4,1,32], f32[4,1,32]) tuple(t, b, s)", ""),
        ("ROOT r = f32[4,1,32] copy(b)", ""),
    ],
)
def test_a_value_that_is_also_part_of_an_array_is_stored_by_one_kernel(rest: str, expected: str) -> None:
    (*others, found) = [k for k in fused(SCAN + BOTH + rest) if "update" in k]
    assert not others and ("tuple" in found) == bool(expected) and expected in found


COLLECTED = """z = f32[4,1,32] parameter(3)
other = f32[1,32] negate(t)
last = f32[1,1,32] reshape(other)
c = f32[4,1,32] dynamic-update-slice(z, last, k, none, none)
"""


@pytest.mark.parametrize(
    ("result", "count"),
    [
        ("ROOT r = (f32[1,32], f32[4,1,32], f32[4,1,32]) tuple(t, b, c)", 3),
        # A value that only the kernel reads is not stored.
        ("ROOT r = (f32[4,1,32], f32[4,1,32]) tuple(b, c)", 2),
        ("u = f32[32,1] reshape(t)\nv = f32[32,32] dot(u, t), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
         "ROOT r = (f32[32,32], f32[4,1,32], f32[4,1,32]) tuple(v, b, c)", 3),
    ],
)  # fmt: skip
def test_functions_of_values_are_collected_by_the_kernel_that_computes_these(result: str, count: int) -> None:
    found = fused(SCAN + BOTH + COLLECTED + result)
    (kernel,) = [kernel for kernel in found if "update" in kernel]
    assert kernel.count("update") == 2 and kernel.count("tanh") == 1 and kernel.endswith("tuple]")
    assert found.count("get-tuple-element") == count


SIDE_BY_SIDE = """a = f32[64,1] reshape(s)
n = f32[64] negate(s)
b = f32[64,1] reshape(n)
"""


@pytest.mark.parametrize(
    ("rest", "is_one_kernel"),
    [
        ("ROOT r = f32[64,2] concatenate(a, b), dimensions={1}", True),
        ("ROOT r = f32[128,1] concatenate(a, b), dimensions={0}", False),
        ("ROOT r = f32[64,9] concatenate(a, b, a, b, a, b, a, b, a), dimensions={1}", False),
    ],
)
def test_columns_of_one_loop_share_what_they_are_computed_from(rest: str, is_one_kernel: bool) -> None:
    """A sum of each row, which columns one after the other would repeat."""
    rows = XY + Z + "p = f32[64,32] multiply(x, y)\ns = f32[64] reduce(p, zero), dimensions={1}, to_apply=sum\n"
    assert (len(fused(rows + SIDE_BY_SIDE + rest)) == 1) == is_one_kernel


@pytest.mark.sampled(6)
@pytest.mark.parametrize("rows", [1, 5, 64, 300])
@pytest.mark.parametrize("count", [2, 3, 8])
def test_joined_columns_compiled(rows: int, count: int) -> None:
    columns = "".join(
        f"m{k} = f32[ROWS] multiply(s, c{k})\nc{k + 1} = f32[ROWS] add(m{k}, s)\nd{k} = f32[ROWS,1] reshape(m{k})\n"
        for k in range(count)
    )
    text = module_text(
        "x = f32[ROWS,40] parameter(0)\nc0 = f32[ROWS] parameter(1)\nzero = f32[] constant(0)\n"
        "s = f32[ROWS] reduce(x, zero), dimensions={1}, to_apply=sum\n"
        f"{columns}ROOT r = f32[ROWS,{count}] concatenate({', '.join(f'd{k}' for k in range(count))}), dimensions={{1}}"
    ).replace("ROWS", str(rows))
    x, c = arrays_for(hl.parse(text))
    (expected,) = interpreted(hl.parse(text), x, c)
    np.testing.assert_allclose(hl.compile(text)(x, c), expected, rtol=1e-4, atol=1e-4)


def test_a_padded_value_is_not_computed_in_each_row() -> None:
    """An update of a broadcast is stored whole, so it has other loops than the value."""
    padded = SCAN.replace("y = f32[4,1,32] parameter(0)", "o = f32[] parameter(0)\ny = f32[4,1,32] broadcast(o)")
    found = fused(
        padded.replace("broadcast(o)", "broadcast(o), dimensions={}")
        + BOTH
        + "ROOT r = (f32[1,32], f32[4,1,32]) tuple(t, b)"
    )
    assert not any(kernel.endswith("tuple]") for kernel in found), found


LOOP = """HloModule m
body {
  s = (s32[], f32[SIZES], f32[9,SIZES], f32[9,SIZES]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  n = s32[] add(i, one)
  h = f32[SIZES] get-tuple-element(s), index=1
  g = f32[SIZES] sine(h)
  o = f32[SIZES] negate(g)
  zero = s32[] constant(0)
  y = f32[9,SIZES] get-tuple-element(s), index=2
  part = f32[1,SIZES] reshape(g)
  z = f32[9,SIZES] get-tuple-element(s), index=3
  p = f32[1,SIZES] reshape(h)
  a = f32[9,SIZES] dynamic-update-slice(y, part, i, STARTS)
  b = f32[9,SIZES] dynamic-update-slice(z, p, i, STARTS)
  ROOT t = (s32[], f32[SIZES], f32[9,SIZES], f32[9,SIZES]) tuple(n, g, a, b)
}
condition {
  s = (s32[], f32[SIZES], f32[9,SIZES], f32[9,SIZES]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  end = s32[] constant(9)
  ROOT c = pred[] compare(i, end), direction=LT
}
ENTRY e {
  x = f32[SIZES] parameter(0)
  y = f32[9,SIZES] parameter(1)
  z = s32[] constant(0)
  s = (s32[], f32[SIZES], f32[9,SIZES], f32[9,SIZES]) tuple(z, x, y, y)
  w = (s32[], f32[SIZES], f32[9,SIZES], f32[9,SIZES]) while(s), condition=condition, body=body
  h = f32[SIZES] get-tuple-element(w), index=1
  c = f32[9,SIZES] get-tuple-element(w), index=2
  d = f32[9,SIZES] get-tuple-element(w), index=3
  ROOT r = (f32[SIZES], f32[9,SIZES], f32[9,SIZES]) tuple(h, c, d)
}
"""


@pytest.mark.sampled(8)
@pytest.mark.parametrize("value", ["g", "o"])
@pytest.mark.parametrize("sizes", ["0", "1", "7", "1,1", "5,1,3", "300,40"])
def test_loops_that_collect_what_they_pass_on(sizes: str, value: str) -> None:
    """Or functions of it."""
    text = (
        LOOP.replace("reshape(g)", f"reshape({value})")
        .replace("SIZES", sizes)
        .replace("STARTS", ", ".join(["zero"] * len(sizes.split(","))))
    )
    arrays = arrays_for(hl.parse(text))
    for found, expected in zip(hl.compile(text)(*arrays), interpreted(hl.parse(text), *arrays), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_fusions_do_not_grow_without_end() -> None:
    chain = XY + "".join(f"a{k} = f32[64,32] negate({f'a{k - 1}' if k else 'x'})\n" for k in range(30))
    found = fused(chain + "ROOT r = f32[64,32] negate(a29)", max_instructions=10)
    assert len(found) == 4 and sum(s.count("negate") for s in found) == 31


def test_scalar_constants_are_part_of_every_fusion_that_may_have_them() -> None:
    entry = """x = f32[] parameter(0)
        three = f32[] constant(3)
        a = f32[] multiply(x, three)
        b = f32[] add(a, three)"""
    assert fused(f"{entry}\nROOT r = (f32[], f32[]) tuple(b, three)") == [
        "constant",
        "fusion[constant multiply add]",
        "tuple",
    ]
    found = fused(f"{entry}\nROOT r = f32[] sine(b)", max_instructions=2)
    assert found == ["fusion[constant multiply]", "fusion[constant add sine]"]


def test_chains_of_element_wise_instructions_may_be_long() -> None:
    chain = "".join(f"\nb{k} = f32[64] negate({f'b{k - 1}' if k else 'x'})" for k in range(300))
    (found,) = fused(f"x = f32[64] parameter(0){chain}\nROOT r = f32[64] sine(b299)", max_depth=1)
    assert found.startswith("fusion[negate negate") and found.endswith("negate sine]")


# Siblings

LEFT = "a = f32[64,32] sine(x)\n"
RIGHT = "b = f32[64,32] cosine(x)\n"


def test_siblings_read_shared_operands_once() -> None:
    found = fused(XY + LEFT + RIGHT + "ROOT r = (f32[64,32], f32[64,32]) tuple(a, b)")
    assert found == ["fusion[sine cosine tuple]", "get-tuple-element", "get-tuple-element", "tuple"]
    nothing_shared = fused(XY + LEFT + RIGHT.replace("x", "y") + "ROOT r = (f32[64,32], f32[64,32]) tuple(a, b)")
    assert nothing_shared == ["sine", "cosine", "tuple"]
    other_sizes = RIGHT.replace("cosine(x)", "transpose(x), dimensions={1,0}").replace("64,32", "32,64")
    apart = fused(XY + LEFT + other_sizes + "ROOT r = (f32[64,32], f32[32,64]) tuple(a, b)")
    assert apart == ["sine", "transpose", "tuple"]


@pytest.mark.parametrize("other", [ROWS, COLUMNS])
def test_reductions_are_siblings_along_the_same_dimensions(other: str) -> None:
    sums = "p = " + ROWS.replace("(a", "(x") + "q = " + other.replace("(a", "(x").replace("sum", "largest")
    shapes = "(f32[64], f32[64])" if other == ROWS else "(f32[64], f32[32])"
    found = fused(XY + Z + sums + f"ROOT r = {shapes} tuple(p, q)")
    assert len([s for s in found if s.startswith("fusion")]) == (1 if other == ROWS else 2)


@pytest.mark.parametrize(("dimension", "kernels"), [(0, 1), (1, 2)])
def test_functions_of_reductions_are_siblings_along_the_same_dimensions(dimension: int, kernels: int) -> None:
    """A nest for sums along rows and along columns would read one of the arrays with a stride."""
    entry = f"""
        x = f32[64,64,32] parameter(0)
        zero = f32[] constant(0)
        p = f32[64,32] reduce(x, zero), dimensions={{0}}, to_apply=sum
        q = f32[64,32] reduce(x, zero), dimensions={{{dimension}}}, to_apply=largest
        a = f32[64,32] sine(p)
        b = f32[64,32] cosine(q)
        ROOT r = (f32[64,32], f32[64,32]) tuple(a, b)"""
    assert len([s for s in fused(entry) if s.startswith("fusion")]) == kernels


WEIGHTS = "w = f32[64,32] exponential(x)\n"
HALVES = "t = f32[64,32] multiply(w, w)\n"


@pytest.mark.parametrize(
    ("lines", "shape", "kernels"),
    [
        ("s = " + ROWS.replace("(a", "(w"), "f32[64]", 1),
        (HALVES + "s = " + ROWS.replace("(a", "(t"), "f32[64]", 1),  # of what is computed from the result
        ("t = " + ROWS.replace("(a", "(w") + "s = " + ROWS.replace("(a", "(w").replace("sum", "largest"), "f32[64]", 2),
        ("s = " + COLUMNS.replace("(a", "(w"), "f32[32]", 2),
        (LEFT + "t = f32[64,32] add(w, a)\ns = " + ROWS.replace("(a", "(t"), "f32[64]", 1),
    ],
)
def test_rows_are_reduced_where_they_are_computed(lines: str, shape: str, kernels: int) -> None:
    results = "w, s, t" if "t = f32[64] " in lines else "w, s"
    shapes = f"f32[64,32], {shape}" + (", f32[64]" if results == "w, s, t" else "")
    found = fused(XY + Z + WEIGHTS + lines + f"ROOT r = ({shapes}) tuple({results})")
    assert len([s for s in found if s not in ("get-tuple-element", "tuple", "constant")]) == kernels


def test_siblings_with_a_path_between_them_are_not_merged() -> None:
    """A fusion of a and b would have to run both before and after the sort of a."""
    between = "c = f32[64,32] sort(a), dimensions={1}, to_apply=less\n"
    after = "b = f32[64,32] multiply(x, c)\nROOT r = (f32[64,32], f32[64,32]) tuple(a, b)"
    assert fused(XY + LEFT + between + after) == ["sine", "sort", "multiply", "tuple"]


def test_a_value_that_several_kernels_repeat_is_stored_once() -> None:
    entry = """
        v = f32[64] parameter(0)
        a = f32[64] tan(v)
        b = f32[64] exponential(a)
        c = f32[64,32] broadcast(b), dimensions={0}
        d = f32[64,32] sine(c)
        e = f32[32,64] transpose(c), dimensions={1,0}
        f = f32[32,64] cosine(e)
        ROOT r = (f32[64,32], f32[32,64]) tuple(d, f)"""
    assert fused(entry) == [
        "fusion[tan exponential]", "fusion[broadcast sine]", "fusion[broadcast transpose cosine]", "tuple"
    ]  # fmt: skip


# Operands of matrix products


@pytest.mark.parametrize(
    ("lhs", "rhs", "attributes", "result", "transposes"),
    [
        ("4,5", "5,6", "lhs_contracting_dims={1}, rhs_contracting_dims={0}", "4,6", 0),
        ("5,4", "6,5", "lhs_contracting_dims={0}, rhs_contracting_dims={1}", "4,6", 0),
        ("2,4,5", "2,5,6", "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}",
         "2,4,6", 0),
        # Two dimensions of one role that are not adjacent, or in the other order, become adjacent.
        ("4,5,3", "5,6", "lhs_contracting_dims={1}, rhs_contracting_dims={0}", "4,3,6", 1),
        ("4,5,3", "3,5,6", "lhs_contracting_dims={1,2}, rhs_contracting_dims={1,0}", "4,6", 1),
        ("5,4,3", "3,6,5", "lhs_contracting_dims={0,2}, rhs_contracting_dims={2,0}", "4,6", 2),
        ("4,1,5", "5,6", "lhs_contracting_dims={2}, rhs_contracting_dims={0}", "4,1,6", 0),
    ],
)  # fmt: skip
def test_operands_of_dots_are_transposed_only_where_a_role_has_no_stride(
    lhs: str, rhs: str, attributes: str, result: str, transposes: int
) -> None:
    before = hl.parse(
        module_text(
            f"x = f32[{lhs}] parameter(0)\ny = f32[{rhs}] parameter(1)\nROOT r = f32[{result}] dot(x, y), {attributes}"
        )
    )
    after = clone_module(before)
    assert DotOperands().run(after) == (transposes > 0)
    verify_module(after)
    assert [i.opcode for i in after.entry.instructions].count("transpose") == transposes
    arrays = arrays_for(before)
    np.testing.assert_array_equal(interpreted(after, *arrays), interpreted(before, *arrays))
    assert DotOperands().run(after) == 0


def test_the_stride_of_dimensions_taken_as_one() -> None:
    shape = hl.Shape.array(hl.f32, (2, 3, 1, 5))
    assert stride_of(shape, (0, 1)) == (6, 5)
    assert stride_of(shape, (1, 2, 3)) == (15, 1)
    assert stride_of(shape, (0, 3)) is None
    assert stride_of(shape, (1, 0)) is None
    assert stride_of(shape, (2,)) == (1, 0)


def _normalised(sizes: str, kept: str, broadcast: str, reduced: str) -> str:
    """A program that subtracts sums of x along `reduced` from x, and multiplies by the maximum of the result."""
    return (
        f"x = f32[{sizes}] parameter(0)\nzero = f32[] constant(0)\n"
        f"s = f32[{kept}] reduce(x, zero), dimensions={{{reduced}}}, to_apply=sum\n"
        f"b = f32[{sizes}] broadcast(s), dimensions={{{broadcast}}}\nd = f32[{sizes}] subtract(x, b)\n"
        f"m = f32[{kept}] reduce(d, zero), dimensions={{{reduced}}}, to_apply=largest\n"
        f"w = f32[{sizes}] broadcast(m), dimensions={{{broadcast}}}\nROOT r = f32[{sizes}] multiply(d, w)"
    )


@pytest.mark.parametrize(
    ("sizes", "kept", "broadcast", "reduced", "kernels"),
    [
        ("3,20,100", "3,100", "0,2", "1", 1),
        ("20,100", "100", "1", "0", 1),
        ("2,4,5,70", "2,70", "0,3", "1,2", 1),
        ("2,12,1,9,8", "2,9,8", "0,3,4", "1,2", 1),
        ("3,300,100", "3,100", "0,2", "1", 4),  # columns that do not stay in the cache
        ("3,20,40", "3,40", "0,2", "1", 4),  # few columns
    ],
)
def test_short_columns_are_reduced_and_used_in_one_kernel(
    sizes: str, kept: str, broadcast: str, reduced: str, kernels: int
) -> None:
    assert len(fused(_normalised(sizes, kept, broadcast, reduced))) == kernels


def test_a_fusion_has_one_access_pattern() -> None:
    entry = _normalised("20,100", "100", "1", "0").replace("ROOT r", "c") + (
        "\nt = f32[20] reduce(c, zero), dimensions={1}, to_apply=sum\n"
        "v = f32[20,100] broadcast(t), dimensions={0}\nROOT r = f32[20,100] add(c, v)"
    )
    assert len(fused(entry)) > 1
    module = hl.parse(module_text(entry))
    found = reasons(FusionPass(can_fuse=lambda i: can_lower(i, lambda *_: True)), module)
    assert any("two access patterns" in reason for reason in found.values())


def test_costly_elementwise_values_are_not_recomputed_along_columns() -> None:
    entry = (
        "x = f32[100] parameter(0)\ny = f32[20,100] parameter(1)\na = f32[100] sine(x)\n"
        "b = f32[20,100] broadcast(a), dimensions={1}\nROOT r = f32[20,100] add(b, y)"
    )
    assert sorted(fused(entry)) == ["fusion[broadcast add]", "sine"]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("columns", [64, 65, 100, 128, 1000])
@pytest.mark.parametrize("rows", [2, 20, 256])
def test_columns_compiled(rows: int, columns: int) -> None:
    entry = _normalised(f"2,{rows},{columns}", f"2,{columns}", "0,2", "1")
    module = hl.parse(module_text(entry))
    (x,) = (array / 16 for array in arrays_for(module))
    (expected,) = interpreted(module, x)
    np.testing.assert_allclose(hl.compile(module)(x), expected, rtol=1e-4, atol=1e-3)
