"""Every opcode has a symbolic meaning: exact, as a function of which only its inputs are known, or refused for a reason."""

from __future__ import annotations

import pytest

import hloom as hl
from hlo_text import module_text
from hloom.ops.operation import OPERATIONS
from hloom.prove import Proved, Undecided, prove
from hloom.prove.equivalence import variables
from hloom.prove.meanings.evaluator import Evaluator, arrays_of
from hloom.prove.terms.term import Unknown, in_order

PARAMETERS = """
x = f32[4] parameter(0)
y = f32[4] parameter(1)
i = s32[4] parameter(2)
m = f32[2,2] parameter(3)
k = s32[] parameter(4)
p = pred[] parameter(5)
s = u64[2] parameter(6)
c = c64[4] parameter(7)
zero = f32[] constant(0)
t = token[] after-all()
v = f32[2] slice(x), slice={[0:2]}
w = f32[2] slice(y), slice={[0:2]}
j = s32[2] slice(i), slice={[0:2]}
l = s32[1] slice(i), slice={[0:1]}
"""

COMPUTATIONS = """
two {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  d = f32[] add(a, b)
  ROOT r = (f32[], f32[]) tuple(d, d)
}
ge {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=GE
}
one {
  a = f32[4] parameter(0)
  ROOT r = f32[4] negate(a)
}
goes {
  a = (s32[], f32[4]) parameter(0)
  n = s32[] get-tuple-element(a), index=0
  ROOT r = pred[] compare(n, s32[] constant(3)), direction=LT
}
steps {
  a = (s32[], f32[4]) parameter(0)
  n = s32[] get-tuple-element(a), index=0
  v = f32[4] get-tuple-element(a), index=1
  ROOT r = (s32[], f32[4]) tuple(s32[] add(n, s32[] constant(1)), f32[4] multiply(v, v))
}
"""

EXACT = {
    "all-gather": "f32[4] all-gather(x), dimensions={0}",
    "all-reduce": "f32[4] all-reduce(x), to_apply=sum",
    "reduce-scatter": "f32[4] reduce-scatter(x), dimensions={0}, to_apply=sum",
    "all-to-all": "f32[4] all-to-all(x), dimensions={0}",
    "collective-permute": "f32[4] collective-permute(x), source_target_pairs={{0,0}}",
    "collective-broadcast": "f32[4] collective-broadcast(x), replica_groups={{0}}",
    "all-gather-start": "(f32[4], f32[4]) all-gather-start(x), dimensions={0}; f32[4] all-gather-done(a)",
    "all-reduce-start": "f32[4] all-reduce-start(x), to_apply=sum; f32[4] all-reduce-done(a)",
    "collective-permute-start":
        "(f32[4], f32[4]) collective-permute-start(x), source_target_pairs={{0,0}}; f32[4] collective-permute-done(a)",
    "batch-norm-training": "(f32[2,2], f32[2], f32[2]) batch-norm-training(m, v, w), epsilon=0.1, feature_index=1",
    "broadcast": "f32[2,4] broadcast(x), dimensions={1}",
    "iota": "f32[4] iota(), iota_dimension=0",
    "copy-start": "(f32[4], f32[4], u32[]) copy-start(x); f32[4] copy-done(a)",
    "call": "f32[4] call(x), to_apply=one",
    "while": "(s32[], f32[4]) while((s32[], f32[4]) tuple(s32[] constant(0), x)), condition=goes, body=steps",
    "conditional": "f32[4] conditional(p, x, y), true_computation=one, false_computation=one",
    "fusion": "f32[4] fusion(x), kind=kLoop, calls=one",
    "bitcast-convert": "f32[4,2] bitcast-convert(f64[4] convert(x))",
    "dot": "f32[2,2] dot(m, m), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "reduce": "f32[] reduce(x, zero), dimensions={0}, to_apply=sum",
    "map": "f32[4] map(x, y), dimensions={0}, to_apply=sum",
    "reduce-window": "f32[3] reduce-window(x, zero), window={size=2}, to_apply=sum",
    "select-and-scatter": "f32[4] select-and-scatter(x, w, zero), window={size=2 stride=2}, select=ge, scatter=sum",
    "get-dimension-size": "s32[] get-dimension-size(x), dimensions={0}",
    "set-dimension-size": "f32[<=4] set-dimension-size(x, k), dimensions={0}",
    "replica-id": "u32[] replica-id()",
    "partition-id": "u32[] partition-id()",
    "pad": "f32[6] pad(x, zero), padding=1_1",
    "concatenate": "f32[8] concatenate(x, y), dimensions={0}",
    "reshape": "f32[2,2] reshape(x)",
    "bitcast": "f32[2,2] bitcast(x)",
    "copy": "f32[4] copy(x)",
    "rng-bit-generator": "(u64[2], u32[4]) rng-bit-generator(s), algorithm=rng_three_fry",
    "slice": "f32[2] slice(x), slice={[1:3]}",
    "dynamic-slice": "f32[2] dynamic-slice(x, k), dynamic_slice_sizes={2}",
    "dynamic-update-slice": "f32[4] dynamic-update-slice(x, w, k)",
    "gather": "f32[4,2] gather(x, i), offset_dims={1}, collapsed_slice_dims={}, start_index_map={0}, index_vector_dim=1, slice_sizes={2}",
    "scatter": "f32[4] scatter(x, i, y), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum",
    "sort": "f32[4] sort(x), dimensions={0}, to_apply=less",
    "topk": "(f32[2], s32[2]) topk(x), k=2",
    "tuple": "(f32[4], s32[]) tuple(x, k)",
    "get-tuple-element": "f32[4] get-tuple-element((f32[4], s32[]) tuple(x, k)), index=0",
    "transpose": "f32[2,2] transpose(m), dimensions={1,0}",
    "reverse": "f32[4] reverse(x), dimensions={0}",
    "opt-barrier": "f32[4] opt-barrier(x)",
    "add-dependency": "f32[4] add-dependency(x, t)",
    "domain": "f32[4] domain(x), domain={kind=\"sharding\", entry={replicated}, exit={replicated}}",
    "batch-norm-inference": "f32[2,2] batch-norm-inference(m, v, w, v, w), epsilon=0.1, feature_index=1",
    "batch-norm-grad": "(f32[2,2], f32[2], f32[2]) batch-norm-grad(m, v, w, v, m), epsilon=0.1, feature_index=1",
    "ragged-dot": "f32[2,2,2] broadcast(m), dimensions={0,1}; f32[2,2] ragged-dot(m, a, j), lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}",
    "scaled-dot": "f32[2,2] scaled-dot(m, m, m, m), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "convolution": "f32[1,3,1] convolution(f32[1,4,1] reshape(x), f32[2,1,1] reshape(v)), window={size=2}, dim_labels=b0f_0io->b0f",
    "dynamic-reshape": "f32[<=4] set-dimension-size(x, k), dimensions={0}; f32[<=4] dynamic-reshape(a, k)",
    "scan": "(f32[4], f32[]) scan(x, zero), dimensions={0}, num_carries=1, to_apply=two",
    "async-start": "((f32[4]), f32[4]) call-start(x), to_apply=one; ((f32[4]), f32[4]) call-update(a); f32[4] call-done(b)",
    "outfeed": "token[] outfeed(x, t); f32[4] copy(x)",
    "send": "(f32[4], u32[], token[]) send(x, t), channel_id=1, is_host_transfer=true; token[] send-done(a), channel_id=1, is_host_transfer=true; f32[4] copy(x)",
}  # fmt: skip

OPAQUE = {
    "fft": "c64[4] fft(c), fft_type=FFT, fft_length={4}",
    "cholesky": "f32[2,2] cholesky(m), lower=true",
    "triangular-solve": "f32[2,2] triangular-solve(m, m), left_side=true, lower=true, transpose_a=NO_TRANSPOSE",
    "custom-call": 'f32[4] custom-call(x), custom_call_target="f"',
    "rng": "f32[4] rng(zero, zero), distribution=rng_uniform",
    "rng-get-and-update-state": "u64[2] rng-get-and-update-state(), delta=1",
    "infeed": "(f32[4], token[]) infeed(t)",
    "recv": "(f32[4], u32[], token[]) recv(t), channel_id=1, is_host_transfer=true; (f32[4], token[]) recv-done(a), channel_id=1, is_host_transfer=true",
}

REFUSED = {
    "ragged-all-to-all": ("f32[4] ragged-all-to-all(x, y, l, l, l, l)", "rows whose number and place depend"),
}


def program(lines: str) -> hl.Module:
    """A module of some instructions, separated by semicolons and named a, b .. and r."""
    *first, last = lines.split("; ")
    named = [f"{name} = {line}" for name, line in zip("ab", first, strict=False)]
    return hl.parse(module_text("\n".join([PARAMETERS, *named, f"ROOT r = {last}"]), COMPUTATIONS))


@pytest.mark.parametrize("opcode", [*EXACT, *OPAQUE])
def test_meanings_are_those_of_the_table(opcode: str) -> None:
    module = program((EXACT | OPAQUE)[opcode])
    assert prove(module, hl.parse(module.to_text())) == Proved()
    if opcode in ("set-dimension-size", "dynamic-reshape"):
        return  # evaluated once for each size
    arguments = [variables(shape, f"p{k}") for k, shape in enumerate(module.entry.parameter_shapes)]
    arrays = arrays_of(Evaluator().run(module.entry, arguments))
    terms = in_order([term for array in arrays for term in array.reshape(-1)])
    assert any(isinstance(term.op, Unknown) for term in terms) == (opcode in OPAQUE)


@pytest.mark.parametrize("opcode", REFUSED)
def test_what_is_refused_has_a_reason(opcode: str) -> None:
    lines, reason = REFUSED[opcode]
    verdict = prove(program(lines), program(lines))
    assert isinstance(verdict, Undecided) and reason in verdict.reason


def test_no_opcode_is_left_out() -> None:
    lines = [*EXACT.values(), *OPAQUE.values(), *(line for line, _ in REFUSED.values())]
    seen = {instruction.opcode for line in lines for instruction in program(line).instructions()}
    builtin = {name for name, op in OPERATIONS.items() if op.__module__.startswith("hloom.ops")}
    assert {name for name in builtin if not OPERATIONS[name].elementwise} <= seen
