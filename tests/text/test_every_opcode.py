"""Every opcode in text and proto: XLA reads what hloom prints, and hloom what XLA prints."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from compare_graphs import difference as graph_difference
from hloom.bench.peer_process import XlaCrash, XlaError, XlaPeer
from hloom.files.arrays import difference, flat
from hloom.proto import module_from_bytes, module_to_bytes

ADD = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }\nge { a1 = f32[] parameter(0)\n b1 = f32[] parameter(1)\n ROOT c1 = pred[] compare(a1, b1), direction=GE }\nid { y = f32[4] parameter(0)\n ROOT x1 = f32[4] negate(y) }\nsc { aa = f32[] parameter(0)\n cc = f32[] parameter(1)\n ss = f32[] add(aa, cc)\n ROOT tt = (f32[], f32[]) tuple(ss, ss) }\n"
HEAD = "  x = f32[4] parameter(0)\n  m = f32[4,4] parameter(1)\n  s = f32[] parameter(2)\n  i = s32[] parameter(3)\n  n = s32[4] parameter(4)\n  t = token[] after-all()\n  u = u64[2] parameter(5)\n  q = f32[1,1,4,4] reshape(m)\n  g = s32[2] constant({1,3})\n  r3 = f32[2,4,4] broadcast(m), dimensions={1,2}\n"
LINES = {
    "async-start": "r = ((f32[4]), f32[4], u32[]) async-start(x), calls=id",
    "async-done": "r0 = ((f32[4]), f32[4], u32[]) async-start(x), calls=id\n ROOT r = f32[4] async-done(r0)",
    "async-update": "r0 = ((f32[4]), f32[4], u32[]) async-start(x), calls=id\n r1 = ((f32[4]), f32[4], u32[]) async-update(r0)\n ROOT r = f32[4] async-done(r1)",
    "domain": 'ROOT r = f32[4] domain(x), domain={kind="sharding", entry={maximal device=0}, exit={maximal device=1}}',
    "rng-get-and-update-state": "ROOT r = u64[2] rng-get-and-update-state(), delta=4",
    "topk": "ROOT r = (f32[2], s32[2]) topk(x), k=2, largest=true",
    "scan": "ROOT r = (f32[4], f32[]) scan(x, s), dimensions={0}, is_reverse=true, is_associative=false, num_carries=1, to_apply=sc",
    "ragged-dot": "ROOT r = f32[4,4] ragged-dot(m, r3, g), lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}",
    "scaled-dot": "ms = f32[4,2] slice(m), slice={[0:4],[0:2]}\n ROOT r = f32[4,4] scaled-dot(m, m, ms, ms), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    "copy-start": "cs = (f32[4], f32[4], u32[]) copy-start(x), cross_program_prefetch_index=0\n ROOT r = f32[4] copy-done(cs)",
    "dynamic-reshape": "ROOT r = f32[<=2,<=8] dynamic-reshape(m, i, i)",
    "stochastic-convert": "k = u32[4] bitcast-convert(x)\n ROOT r = s8[4] stochastic-convert(x, k)",
    "batch-norm-training": "ROOT r = (f32[4,4], f32[4], f32[4]) batch-norm-training(m, x, x), epsilon=0.001, feature_index=1",
    "batch-norm-inference": "ROOT r = f32[4,4] batch-norm-inference(m, x, x, x, x), epsilon=0.001, feature_index=1",
    "batch-norm-grad": "ROOT r = (f32[4,4], f32[4], f32[4]) batch-norm-grad(m, x, x, x, m), epsilon=0.001, feature_index=1",
    "cholesky": "ROOT r = f32[4,4] cholesky(m), lower=true",
    "triangular-solve": "ROOT r = f32[4,4] triangular-solve(m, m), left_side=true, lower=true, unit_diagonal=true, transpose_a=ADJOINT",
    "fft": "z = c64[4] complex(x, x)\n ROOT r = c64[4] fft(z), fft_type=IFFT, fft_length={4}",
    "rng": "ROOT r = f32[4] rng(s, s), distribution=rng_normal",
    "rng-bit-generator": "ROOT r = (u64[2], u32[4]) rng-bit-generator(u), algorithm=rng_three_fry",
    "infeed": 'ROOT r = (f32[4], token[]) infeed(t), infeed_config="abc"',
    "outfeed": 'ROOT r = token[] outfeed(x, t), outfeed_shape=f32[4]{0}, outfeed_config="a"',
    "send": "ss = (f32[4], u32[], token[]) send(x, t), channel_id=3, is_host_transfer=true\n ROOT r = token[] send-done(ss), channel_id=3, is_host_transfer=true",
    "recv": "ss = (f32[4], u32[], token[]) recv(t), channel_id=3, is_host_transfer=true\n ROOT r = (f32[4], token[]) recv-done(ss), channel_id=3, is_host_transfer=true",
    "all-gather": "ROOT r = f32[4] all-gather(x), channel_id=2, replica_groups={{0}}, dimensions={0}, use_global_device_ids=true",
    "all-gather-start": "a = (f32[4], f32[4]) all-gather-start(x), replica_groups={{0}}, dimensions={0}\n ROOT r = f32[4] all-gather-done(a)",
    "all-reduce": "ROOT r = f32[4] all-reduce(x), channel_id=2, replica_groups={{0}}, use_global_device_ids=true, to_apply=add",
    "all-reduce-start": "a = f32[4] all-reduce-start(x), replica_groups={{0}}, to_apply=add\n ROOT r = f32[4] all-reduce-done(a)",
    "reduce-scatter": "ROOT r = f32[4] reduce-scatter(x), replica_groups={{0}}, dimensions={0}, to_apply=add",
    "all-to-all": "ROOT r = f32[4] all-to-all(x), replica_groups={{0}}, dimensions={0}",
    "all-to-all tuple": "ROOT r = (f32[4]) all-to-all(x), replica_groups={{0}}",
    "collective-permute": "ROOT r = f32[4] collective-permute(x), source_target_pairs={{0,0}}",
    "collective-permute-start": "a = (f32[4], f32[4]) collective-permute-start(x), source_target_pairs={{0,0}}\n ROOT r = f32[4] collective-permute-done(a)",
    "collective-broadcast": "ROOT r = f32[4] collective-broadcast(x), replica_groups={{0}}",
    "ragged-all-to-all": "o = s32[1] constant({0})\n ROOT r = f32[4] ragged-all-to-all(x, x, o, o, o, o), replica_groups={{0}}",
    "replica-id": "ROOT r = u32[] replica-id()",
    "partition-id": "ROOT r = u32[] partition-id()",
    "add-dependency": "ROOT r = f32[4] add-dependency(x, t)",
    "opt-barrier": "ROOT r = f32[4] opt-barrier(x)",
    "reduce-precision": "ROOT r = f32[4] reduce-precision(x), exponent_bits=5, mantissa_bits=10",
    "get-dimension-size": "ROOT r = s32[] get-dimension-size(x), dimensions={0}",
    "set-dimension-size": "ROOT r = f32[<=4] set-dimension-size(x, i), dimensions={0}",
    "map": "ROOT r = f32[4] map(x, x), dimensions={0}, to_apply=add",
    "select-and-scatter": "w = f32[2] slice(x), slice={[0:2]}\n ROOT r = f32[4] select-and-scatter(x, w, s), window={size=2 stride=2}, select=ge, scatter=add",
    "mulhi": "ROOT r = s32[4] mulhi(n, n)",
    "acos": "ROOT r = f32[4] acos(x)",
    "acosh": "ROOT r = f32[4] acosh(x)",
    "asin": "ROOT r = f32[4] asin(x)",
    "asinh": "ROOT r = f32[4] asinh(x)",
    "atanh": "ROOT r = f32[4] atanh(x)",
    "cosh": "ROOT r = f32[4] cosh(x)",
    "sinh": "ROOT r = f32[4] sinh(x)",
    "tan acc": "ROOT r = f32[4] tan(x), result_accuracy={tolerance={atol=0,rtol=0.5,ulps=2}}",
    "exp acc": "ROOT r = f32[4] exponential(x), result_accuracy={mode=highest}",
    "fusion": "ROOT r = f32[4] fusion(x), kind=kLoop, calls=id",
    "bitcast": "ROOT r = f32[16] bitcast(m)",
    "custom-call": 'ROOT r = f32[4] custom-call(x), custom_call_target="f", operand_layout_constraints={f32[4]{0}}, custom_call_has_side_effect=true, output_to_operand_aliasing={{}: (0, {})}, schedule=SCHEDULE_LATEST, api_version=API_VERSION_STATUS_RETURNING, backend_config="abc"',
    "custom-call 2": 'ROOT r = f32[1,1,4,4] custom-call(q, q), window={size=4x4}, dim_labels=bf01_oi01->bf01, feature_group_count=2, custom_call_target="f", called_computations={add}, padding_type=PADDING_SAME',
    "custom-call lit": 'ROOT r = f32[4] custom-call(x), custom_call_target="f", literal=s32[2]{0} {1, 2}',
}

# What XLA's CPU backend does not run, or crashes on; hloom's results for these are checked elsewhere.
NOT_RUN = {
    "async-done", "async-start", "async-update", "ragged-dot", "scaled-dot", "copy-start", "collective-broadcast", "mulhi", "acos",
    "acosh", "asin", "asinh", "atanh", "cosh", "sinh", "bitcast", "infeed", "outfeed", "send", "recv", "custom-call",
    "custom-call 2", "custom-call lit", "rng", "domain", "all-to-all tuple", "ragged-all-to-all", "dynamic-reshape",
    "set-dimension-size",
}  # fmt: skip


def program(name: str) -> hl.Module:
    line = LINES[name] if "ROOT" in LINES[name] else f"ROOT {LINES[name]}"
    return hl.parse(f"HloModule m\n{ADD}ENTRY e {{\n{HEAD}  {line}\n}}\n")


@pytest.mark.parametrize("name", LINES)
def test_xla_and_hloom_read_each_other(name: str, peer: XlaPeer) -> None:
    module = program(name)
    hl.parse(peer.parse(module.to_text()))
    assert graph_difference(module, hl.parse(module.to_text())) is None
    again = module_from_bytes(module_to_bytes(module))
    peer.read_proto(module_to_bytes(module))
    assert again.entry.root.op.fields == module.entry.root.op.fields
    own, others = module.entry.root.op, again.entry.root.op
    for field in own.fields:
        if not list(field.kind.computations(own.__dict__[field.name])):
            assert own.__dict__[field.name] == others.__dict__[field.name], field.name


@pytest.mark.sampled(15)
@pytest.mark.parametrize("name", [name for name in LINES if name not in NOT_RUN])
def test_xla_computes_the_same(name: str, peer: XlaPeer) -> None:
    rng = np.random.default_rng(0)
    square = rng.standard_normal((4, 4))
    arguments = [
        rng.standard_normal(4).astype(np.float32),
        (square @ square.T + 4 * np.eye(4)).astype(np.float32),
        np.asarray(0.5, np.float32),
        np.asarray(2, np.int32),
        np.arange(-2, 2, dtype=np.int32) * 1000000000,
        np.array([3, 4], np.uint64),
    ]
    module = program(name)
    try:
        want = peer.run(module.to_text(), arguments)
    except (XlaError, XlaCrash) as error:
        pytest.fail(f"XLA does not run it: {error}")
    for got, expected in zip(flat(hl.compile(module, backend="interpreter")(*arguments)), want, strict=True):
        assert difference(got, expected, 1e-5, 1e-5) is None


def test_results_where_xla_cpu_has_none() -> None:
    """Semantics by NumPy: the inverse and hyperbolic functions, mulhi, ragged-dot, scaled-dot, dynamic-reshape, bitcast."""
    rng = np.random.default_rng(1)
    x, m = rng.uniform(0.1, 0.9, 4).astype(np.float32), rng.standard_normal((4, 4)).astype(np.float32)
    n = np.array([-(2**31), -1, 5, 2**31 - 1], np.int32)
    rest = [np.float32(0), np.int32(4), n, np.array([3, 4], np.uint64)]

    def run(name: str, x: np.ndarray = x) -> np.ndarray:
        return hl.compile(program(name), backend="interpreter")(x, m, *rest)

    for name in ("acos", "asin", "atanh", "cosh", "sinh", "asinh"):
        wide = getattr(np, name.replace("a", "arc", 1) if name[0] == "a" else name)(x.astype(np.float64))
        np.testing.assert_allclose(run(name), wide, rtol=1e-6)
    np.testing.assert_allclose(run("acosh", x + 1), np.arccosh(x.astype(np.float64) + 1), rtol=1e-6)
    assert run("mulhi").tolist() == [(int(v) * int(v)) >> 32 for v in n]
    np.testing.assert_allclose(run("ragged-dot"), m @ m, rtol=1e-5, atol=1e-6)
    scale = np.repeat(m[:, :2], 2, axis=1)
    np.testing.assert_allclose(run("scaled-dot"), (m * scale) @ (m * scale).T, rtol=1e-5, atol=1e-5)
    assert run("bitcast").tolist() == m.reshape(-1).tolist()
    text = "HloModule m\nENTRY e { x = f32[2,3]{0,1} parameter(0)\n ROOT r = f32[6]{0} bitcast(x) }"
    assert hl.compile(text, backend="interpreter")(np.array([[1, 2, 3], [4, 5, 6]], np.float32)).tolist() == [
        1,
        4,
        2,
        5,
        3,
        6,
    ]
    text = "HloModule m\nENTRY e { x = f32[4] parameter(0)\n a = s32[] parameter(1)\n b = s32[] parameter(2)\n"
    text += " ROOT r = f32[<=4,<=1] dynamic-reshape(x, a, b) }"
    assert hl.compile(text, backend="interpreter")(x, 4, 1).shape == (4, 1)
    with pytest.raises(hl.RunError, match="RESHAPE-2"):
        hl.compile(text, backend="interpreter")(x, 3, 1)


def test_ragged_dot_with_a_ragged_contracting_dimension_gives_a_result_for_each_group() -> None:
    text = """HloModule m
ENTRY e { a = f32[2,5] parameter(0)
  b = f32[5,3] parameter(1)
  g = s32[2] constant({2, 3})
  ROOT r = f32[2,2,3] ragged-dot(a, b, g), lhs_contracting_dims={1}, rhs_contracting_dims={0}, lhs_ragged_dims={1} }"""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 5)).astype(np.float32), rng.standard_normal((5, 3)).astype(np.float32)
    want = np.stack([a[:, :2] @ b[:2], a[:, 2:] @ b[2:]])
    np.testing.assert_allclose(hl.compile(text, backend="interpreter")(a, b), want, rtol=1e-5, atol=1e-6)


def test_ragged_dot_with_ragged_rows_takes_the_matrix_of_each_group() -> None:
    text = """HloModule m
ENTRY e { a = f32[5,3] parameter(0)
  b = f32[2,3,4] parameter(1)
  g = s32[2] constant({2, 3})
  ROOT r = f32[5,4] ragged-dot(a, b, g), lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0} }"""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((5, 3)).astype(np.float32), rng.standard_normal((2, 3, 4)).astype(np.float32)
    want = np.concatenate([a[:2] @ b[0], a[2:] @ b[1]])
    np.testing.assert_allclose(hl.compile(text, backend="interpreter")(a, b), want, rtol=1e-5, atol=1e-6)


def test_group_sizes_of_ragged_dot_differ_by_the_indices_outside_of_the_ragged_dimension() -> None:
    """DOTGENERAL-6: batch indices, and those of earlier contracting or free dimensions."""
    text = """HloModule m
ENTRY e { a = f32[2,3,5] parameter(0)
  b = f32[3,5,4] parameter(1)
  g = s32[3,2] parameter(2)
  ROOT r = f32[2,2,4] ragged-dot(a, b, g), lhs_contracting_dims={1,2}, rhs_contracting_dims={0,1}, lhs_ragged_dims={2} }"""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 3, 5)).astype(np.float32), rng.standard_normal((3, 5, 4)).astype(np.float32)
    sizes = np.array([[2, 3], [0, 4], [5, 0]], np.int32)
    want = np.zeros((2, 2, 4))
    for row, (first, second) in enumerate(sizes):
        want[0] += a[:, row, :first] @ b[row, :first]
        want[1] += a[:, row, first : first + second] @ b[row, first : first + second]
    for backend in ("interpreter", "cpu"):
        np.testing.assert_allclose(hl.compile(text, backend=backend)(a, b, sizes), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("s32[2]", "s32[4,2]", r"shape \[3,2\], got s32\[4,2\]"),
        ("s32[2]", "s32[3,5,2]", r"shape \[3,2\]"),
        ("s32[2]", "s32[4]", "an entry for each of the 4 groups"),
        ("rhs_group_dims={1}", "rhs_group_dims={0}", "neither a batch nor a contracting dimension"),
    ],
)
def test_group_sizes_of_ragged_dot_that_are_refused(old: str, new: str, message: str) -> None:
    """DOTGENERAL-6."""
    text = """HloModule m
ENTRY e { a = f32[3,5,6] parameter(0)
  b = f32[3,2,6,4] parameter(1)
  g = s32[2] parameter(2)
  ROOT r = f32[3,5,4] ragged-dot(a, b, g), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}, lhs_ragged_dims={1}, rhs_group_dims={1} }"""
    hl.parse(text)
    assert text.count(old) == 1
    with pytest.raises(hl.RuleError, match=message):
        hl.parse(text.replace(old, new))
