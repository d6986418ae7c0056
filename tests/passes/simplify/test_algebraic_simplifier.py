"""Each rewrite rule alone: HLO before and after, and the law of rewrite rules on special values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hloom as hl
from backends.cpu.random_programs import Generator
from hloom.errors import ArgumentError
from hloom.fuzz.grammar import draw_case
from hloom.fuzz.oracles import rewritten
from hloom.fuzz.reference import reference_of
from hloom.ops.attributes import PaddingDimension
from hloom.passes.pipeline import run_passes
from hloom.passes.registry import simplification_pipeline
from hloom.passes.rewrite import RuleSet
from hloom.passes.simplify.algebraic_simplifier import RULES, AlgebraicSimplifier
from passes.modules import check_same_results, inputs, module, same_graph

B = "broadcast"
P_K = "pk = pred[1] dynamic-slice(p, k), dynamic_slice_sizes={1}"
X_K = "xk = f32[1] dynamic-slice(x, k), dynamic_slice_sizes={1}"
K1 = "k1 = s32[1] reshape(k)"
X_K1 = "xk = f32[1] dynamic-slice(x, e0), dynamic_slice_sizes={1}"
INSIDE = (
    f"{K1}; k2 = s32[1] reshape(k1); part = s32[1] slice(k2), slice={{[0:1]}}; e0 = s32[] reshape(part);"
    "lo = s32[] constant(0); hi = s32[] constant(3); le = pred[] compare(e0, hi), direction=LE;"
    "ge = pred[] compare(e0, lo), direction=GE; inside = pred[] and(ge, le)"
)
SET_ONE = "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=0"
GET_ONE = "offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=0, slice_sizes={1}"
ROWS_OF_TWO = "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,2}"

# rule, before, after
CASES = [
    ("constant-of-equal-elements", "ROOT r = s32[3] constant({7, 7, 7})",
     "a = s32[] constant(7); ROOT r = s32[3] broadcast(a), dimensions={}"),
    *((f"{op}-constant-right", f"ROOT r = s32[4] {op}(i5, i)", f"ROOT r = s32[4] {op}(i, i5)")
      for op in ("add", "multiply", "maximum", "minimum", "and", "or", "xor")),
    *((f"{op}-constants", f"a = s32[4] {op}(i, i5); ROOT r = s32[4] {op}(a, i2)",
       f"a = s32[4] {op}(i5, i2); ROOT r = s32[4] {op}(i, a)")
      for op in ("add", "multiply", "maximum", "minimum", "and", "or", "xor")),
    ("add-zero", "ROOT r = s32[4] add(i, i0)", "i"),
    ("add-zero", "ROOT r = pred[4] add(p, t0)", "p"),
    ("add-minus-zero", "ROOT r = f32[4] add(x, f_0)", "x"),
    ("subtract-zero", "ROOT r = f32[4] subtract(x, f0)", "x"),
    ("subtract-self", "ROOT r = s32[4] subtract(i, i)", "i0"),
    ("add-negate", "a = f32[4] negate(y); ROOT r = f32[4] add(x, a)", "ROOT r = f32[4] subtract(x, y)"),
    ("negate-add", "a = f32[4] negate(y); ROOT r = f32[4] add(a, x)", "ROOT r = f32[4] subtract(x, y)"),
    ("subtract-negate", "a = f32[4] negate(y); ROOT r = f32[4] subtract(x, a)", "ROOT r = f32[4] add(x, y)"),
    ("multiply-one", "ROOT r = f32[4] multiply(x, f1)", "x"),
    ("multiply-one", "ROOT r = pred[4] multiply(p, t1)", "p"),
    ("multiply-zero", "ROOT r = s32[4] multiply(i, i0)", "i0"),
    ("multiply-minus-one", "ROOT r = f32[4] multiply(x, f_1)", "ROOT r = f32[4] negate(x)"),
    ("multiply-minus-one", "ROOT r = s32[4] multiply(i, i_1)", "ROOT r = s32[4] negate(i)"),
    ("multiply-negated", "a = f32[4] negate(x); b = f32[4] negate(y); ROOT r = f32[4] multiply(a, b)",
     "ROOT r = f32[4] multiply(x, y)"),
    ("divide-one", "ROOT r = s32[4] divide(i, i1)", "i"),
    ("divide-power-of-two", "ROOT r = f32[4] divide(x, f8)",
     "a = f32[] constant(0.125); b = f32[4] broadcast(a), dimensions={}; ROOT r = f32[4] multiply(x, b)"),
    ("divide-unsigned-power-of-two", "ROOT r = u32[4] divide(u, u8)",
     "a = u32[] constant(3); b = u32[4] broadcast(a), dimensions={}; ROOT r = u32[4] shift-right-logical(u, b)"),
    ("remainder-one", "ROOT r = s32[4] remainder(i, i1)", "i0"),
    ("remainder-unsigned-power-of-two", "ROOT r = u32[4] remainder(u, u8)",
     "a = u32[] constant(7); b = u32[4] broadcast(a), dimensions={}; ROOT r = u32[4] and(u, b)"),
    ("negate-negate", "a = s32[4] negate(i); ROOT r = s32[4] negate(a)", "i"),
    ("abs-abs", "a = f32[4] abs(x); ROOT r = f32[4] abs(a)", "ROOT r = f32[4] abs(x)"),
    ("abs-negate", "a = f32[4] negate(x); ROOT r = f32[4] abs(a)", "ROOT r = f32[4] abs(x)"),
    ("power-zero", "ROOT r = f32[4] power(x, f0)", "f1"),
    ("power-one", "ROOT r = f32[4] power(x, f1)", "x"),
    ("power-two", "ROOT r = f32[4] power(x, f2)", "ROOT r = f32[4] multiply(x, x)"),
    ("power-two", "ROOT r = s32[4] power(i, i2)", "ROOT r = s32[4] multiply(i, i)"),
    *((f"{op}-zero", f"ROOT r = s32[4] {op}(i, i0)", "i")
      for op in ("shift-left", "shift-right-logical", "shift-right-arithmetic")),
    *((f"{op}-self", f"ROOT r = s32[4] {op}(i, i)", "i") for op in ("maximum", "minimum", "and", "or")),
    ("xor-self", "ROOT r = s32[4] xor(i, i)", "i0"),
    ("maximum-lowest", "ROOT r = f32[4] maximum(x, f_inf)", "x"),
    ("minimum-highest", "ROOT r = f32[4] minimum(x, finf)", "x"),
    ("maximum-lowest", "ROOT r = s32[4] maximum(i, imin)", "i"),
    ("maximum-highest", "ROOT r = s32[4] maximum(i, imax)", "imax"),
    ("minimum-lowest", "ROOT r = s32[4] minimum(i, imin)", "imin"),
    ("not-not", "a = pred[4] not(p); ROOT r = pred[4] not(a)", "p"),
    ("and-zero", "ROOT r = s32[4] and(i, i0)", "i0"),
    ("and-ones", "ROOT r = s32[4] and(i, i_1)", "i"),
    ("and-ones", "ROOT r = pred[4] and(p, t1)", "p"),
    ("or-zero", "ROOT r = pred[4] or(p, t0)", "p"),
    ("or-ones", "ROOT r = pred[4] or(p, t1)", "t1"),
    ("xor-zero", "ROOT r = s32[4] xor(i, i0)", "i"),
    ("compare-constant-right", "ROOT r = pred[4] compare(i5, i), direction=LT",
     "ROOT r = pred[4] compare(i, i5), direction=GT"),
    ("compare-self", "ROOT r = pred[4] compare(i, i), direction=LE", "t1"),
    ("compare-self", "ROOT r = pred[4] compare(x, x), direction=NE, type=TOTALORDER", "t0"),
    ("compare-unsigned-zero", "ROOT r = pred[4] compare(u, u0), direction=LT", "t0"),
    ("not-compare", "a = pred[4] compare(i, j), direction=LT; ROOT r = pred[4] not(a)",
     "ROOT r = pred[4] compare(i, j), direction=GE"),
    ("not-compare", "a = pred[4] compare(x, y), direction=EQ; ROOT r = pred[4] not(a)",
     "ROOT r = pred[4] compare(x, y), direction=NE"),
    ("select-constant", "ROOT r = f32[4] select(t0, x, y)", "y"),
    ("select-equal", "ROOT r = f32[4] select(p, x, x)", "x"),
    ("select-not", "a = pred[4] not(p); ROOT r = f32[4] select(a, x, y)", "ROOT r = f32[4] select(p, y, x)"),
    ("select-true-false", "ROOT r = pred[4] select(p, t1, t0)", "p"),
    ("clamp-unbounded", "ROOT r = s32[4] clamp(imin, i, imax)", "i"),
    ("clamp-clamp", "a = f32[4] clamp(x, y, z); ROOT r = f32[4] clamp(x, a, z)", "ROOT r = f32[4] clamp(x, y, z)"),
    ("convert-same", "ROOT r = f32[4] convert(x)", "x"),
    ("convert-convert", "a = f64[4] convert(x); ROOT r = f32[4] convert(a)", "x"),
    ("convert-convert", "a = f32[4] convert(h); ROOT r = s32[4] convert(a)", "ROOT r = s32[4] convert(h)"),
    ("convert-convert", "a = s32[4] convert(p); ROOT r = f32[4] convert(a)", "ROOT r = f32[4] convert(p)"),
    ("bitcast-convert-same", "ROOT r = f32[4] bitcast-convert(x)", "x"),
    ("bitcast-convert-twice", "a = s32[4] bitcast-convert(x); ROOT r = f32[4] bitcast-convert(a)", "x"),
    ("real-complex", "a = c64[4] complex(x, y); ROOT r = f32[4] real(a)", "x"),
    ("imag-complex", "a = c64[4] complex(x, y); ROOT r = f32[4] imag(a)", "y"),
    ("complex-parts", "a = f32[4] real(c); b = f32[4] imag(c); ROOT r = c64[4] complex(a, b)", "c"),
    ("real-real", "ROOT r = f32[4] real(x)", "x"),
    ("imag-real", "ROOT r = f32[4] imag(x)", "f0"),
    ("reshape-same", "ROOT r = f32[2,3] reshape(m)", "m"),
    ("reshape-reshape", "a = f32[6] reshape(m); ROOT r = f32[3,2] reshape(a)", "ROOT r = f32[3,2] reshape(m)"),
    ("reshape-splat", f"a = f32[2,6] {B}(s), dimensions={{}}; ROOT r = f32[3,4] reshape(a)",
     f"ROOT r = f32[3,4] {B}(s), dimensions={{}}"),
    ("reshape-broadcast", f"a = f32[5,1,4] {B}(x), dimensions={{2}}; ROOT r = f32[1,5,4] reshape(a)",
     f"ROOT r = f32[1,5,4] {B}(x), dimensions={{2}}"),
    ("broadcast-same", f"ROOT r = f32[2,3] {B}(m), dimensions={{0,1}}", "m"),
    ("broadcast-broadcast", f"a = f32[4,5] {B}(x), dimensions={{0}}; ROOT r = f32[5,3,4] {B}(a), dimensions={{2,0}}",
     f"ROOT r = f32[5,3,4] {B}(x), dimensions={{2}}"),
    ("broadcast-of-ones", f"ROOT r = f32[1,4,5] {B}(o), dimensions={{0,1}}",
     f"a = f32[4] reshape(o); ROOT r = f32[1,4,5] {B}(a), dimensions={{1}}"),
    ("broadcast-adds-ones", f"ROOT r = f32[1,4,1] {B}(x), dimensions={{1}}", "ROOT r = f32[1,4,1] reshape(x)"),
    ("transpose-same", "ROOT r = f32[2,3] transpose(m), dimensions={0,1}", "m"),
    ("transpose-transpose", "a = f32[3,2,1] transpose(t), dimensions={2,0,1}; ROOT r = f32[1,3,2] transpose(a), dimensions={2,0,1}",
     "ROOT r = f32[1,3,2] transpose(t), dimensions={1,2,0}"),
    ("transpose-reshape-transpose",
     "a = f32[3,2,1] transpose(t), dimensions={2,0,1}; b = f32[3,2] reshape(a); ROOT r = f32[2,3] transpose(b), dimensions={1,0}",
     "a = f32[1,2,3] transpose(t), dimensions={1,0,2}; ROOT r = f32[2,3] reshape(a)"),
    ("transpose-of-ones", "ROOT r = f32[4,1] transpose(o), dimensions={1,0}", "ROOT r = f32[4,1] reshape(o)"),
    ("transpose-broadcast", f"a = f32[4,5] {B}(x), dimensions={{0}}; ROOT r = f32[5,4] transpose(a), dimensions={{1,0}}",
     f"ROOT r = f32[5,4] {B}(x), dimensions={{1}}"),
    ("reverse-of-ones", "ROOT r = f32[1,4] reverse(o), dimensions={0}", "o"),
    ("reverse-of-ones", "ROOT r = f32[1,4] reverse(o), dimensions={0,1}", "ROOT r = f32[1,4] reverse(o), dimensions={1}"),
    ("reverse-none", "ROOT r = f32[4] reverse(x), dimensions={}", "x"),
    ("reverse-reverse", "a = f32[2,3] reverse(m), dimensions={0,1}; ROOT r = f32[2,3] reverse(a), dimensions={1}",
     "ROOT r = f32[2,3] reverse(m), dimensions={0}"),
    ("reverse-broadcast", f"a = f32[4,5] {B}(x), dimensions={{0}}; ROOT r = f32[4,5] reverse(a), dimensions={{0,1}}",
     f"a = f32[4,5] {B}(x), dimensions={{0}}; ROOT r = f32[4,5] reverse(a), dimensions={{0}}"),
    ("elementwise-of-broadcasts", f"a = f32[4] {B}(s), dimensions={{}}; ROOT r = f32[4] add(a, f1)",
     f"a = f32[] add(s, f1s); ROOT r = f32[4] {B}(a), dimensions={{}}"),
    ("elementwise-of-broadcasts",
     f"a = f32[4,5] {B}(x), dimensions={{0}}; b = f32[4,5] {B}(s), dimensions={{}}; ROOT r = f32[4,5] maximum(a, b)",
     f"b = f32[4] {B}(s), dimensions={{}}; a = f32[4] maximum(x, b); ROOT r = f32[4,5] {B}(a), dimensions={{0}}"),
    ("elementwise-of-broadcasts",
     f"a = pred[4,5] {B}(p), dimensions={{0}}; b = f32[4,5] {B}(s), dimensions={{}}; ROOT r = f32[4,5] select(a, b, b)",
     f"b = f32[4] {B}(s), dimensions={{}}; b1 = f32[4] {B}(s), dimensions={{}}; a = f32[4] select(p, b, b1); ROOT r = f32[4,5] {B}(a), dimensions={{0}}"),
    ("elementwise-of-reshapes",
     f"one = f32[] constant(1); zero = f32[] constant(0); a = pred[1,4] reshape(p); b = f32[1,4] {B}(one), dimensions={{}};"
     f"b1 = f32[1,4] {B}(zero), dimensions={{}}; ROOT r = f32[1,4] select(a, b, b1)",
     f"one = f32[] constant(1); zero = f32[] constant(0); b = f32[4] {B}(one), dimensions={{}};"
     f"b1 = f32[4] {B}(zero), dimensions={{}}; a = f32[4] select(p, b, b1); ROOT r = f32[1,4] reshape(a)"),
    ("elementwise-of-reshapes", "a = f32[6] reshape(m); b = f32[6] reshape(n); ROOT r = f32[6] add(a, b)",
     "a = f32[2,3] add(m, n); ROOT r = f32[6] reshape(a)"),
    ("elementwise-of-reshapes", "a = f32[1,4] reshape(x); ROOT r = f32[1,4] sqrt(a)",
     "a = f32[4] sqrt(x); ROOT r = f32[1,4] reshape(a)"),
    ("elementwise-of-transposes",
     "a = f32[3,2] transpose(m), dimensions={1,0}; b = f32[3,2] transpose(n), dimensions={1,0}; ROOT r = f32[3,2] add(a, b)",
     "a = f32[2,3] add(m, n); ROOT r = f32[3,2] transpose(a), dimensions={1,0}"),
    ("slice-all", "ROOT r = f32[4] slice(x), slice={[0:4]}", "x"),
    ("slice-slice", "a = f32[3] slice(x), slice={[1:4]}; ROOT r = f32[2] slice(a), slice={[0:3:2]}",
     "ROOT r = f32[2] slice(x), slice={[1:4:2]}"),
    ("slice-broadcast", f"a = f32[4,5] {B}(x), dimensions={{0}}; ROOT r = f32[2,3] slice(a), slice={{[1:3], [0:3]}}",
     f"a = f32[2] slice(x), slice={{[1:3]}}; ROOT r = f32[2,3] {B}(a), dimensions={{0}}"),
    ("slice-concatenate", "a = f32[8] concatenate(x, y), dimensions={0}; ROOT r = f32[2] slice(a), slice={[5:7]}",
     "ROOT r = f32[2] slice(y), slice={[1:3]}"),
    ("concatenate-one", "ROOT r = f32[4] concatenate(x), dimensions={0}", "x"),
    ("concatenate-empty", "ROOT r = f32[8] concatenate(x, e, y), dimensions={0}",
     "ROOT r = f32[8] concatenate(x, y), dimensions={0}"),
    ("concatenate-concatenate", "a = f32[8] concatenate(x, y), dimensions={0}; ROOT r = f32[12] concatenate(a, z), dimensions={0}",
     "ROOT r = f32[12] concatenate(x, y, z), dimensions={0}"),
    ("concatenate-slices",
     "a = f32[1] slice(x), slice={[1:2]}; b = f32[2] slice(x), slice={[2:4]}; ROOT r = f32[3] concatenate(a, b), dimensions={0}",
     "ROOT r = f32[3] slice(x), slice={[1:4]}"),
    ("transpose-concatenate",
     "a = f32[1,4] negate(o); b = f32[2,4] concatenate(o, a), dimensions={0}; ROOT r = f32[4,2] transpose(b), dimensions={1,0}",
     "a = f32[1,4] negate(o); b = f32[4,1] reshape(o); a1 = f32[4,1] reshape(a); ROOT r = f32[4,2] concatenate(b, a1), dimensions={1}"),
    ("concatenate-splats", "ROOT r = f32[8] concatenate(f1, f1), dimensions={0}",
     f"ROOT r = f32[8] {B}(f1s), dimensions={{}}"),
    ("pad-nothing", "ROOT r = f32[4] pad(x, s), padding=0_0", "x"),
    ("pad-negative", "ROOT r = f32[2] pad(x, s), padding=-1_-1", "ROOT r = f32[2] slice(x), slice={[1:3]}"),
    ("pad-empty", "ROOT r = f32[3] pad(e, s), padding=1_2", f"ROOT r = f32[3] {B}(s), dimensions={{}}"),
    ("pad-splat", f"a = f32[4] {B}(s), dimensions={{}}; ROOT r = f32[9] pad(a, s), padding=1_1_1",
     f"ROOT r = f32[9] {B}(s), dimensions={{}}"),
    ("dynamic-slice-all", "ROOT r = f32[4] dynamic-slice(x, k), dynamic_slice_sizes={4}", "x"),
    ("dynamic-slice-constant", "a = s32[] constant(9); ROOT r = f32[2] dynamic-slice(x, a), dynamic_slice_sizes={2}",
     "ROOT r = f32[2] slice(x), slice={[2:4]}"),
    ("dynamic-update-slice-none", "ROOT r = f32[4] dynamic-update-slice(x, e, k)", "x"),
    ("dynamic-update-slice-all", "ROOT r = f32[4] dynamic-update-slice(x, y, k)", "y"),
    ("dynamic-slice-broadcast",
     f"a = f32[4,5] {B}(x), dimensions={{0}}; zero = s32[] constant(0); ROOT r = f32[2,3] dynamic-slice(a, k, zero), dynamic_slice_sizes={{2,3}}",
     f"a = f32[2] dynamic-slice(x, k), dynamic_slice_sizes={{2}}; ROOT r = f32[2,3] {B}(a), dimensions={{0}}"),
    ("gather-splat", f"a = f32[4,5] {B}(s), dimensions={{}}; ROOT r = f32[4,2] gather(a, i), {ROWS_OF_TWO}",
     f"ROOT r = f32[4,2] {B}(s), dimensions={{}}"),
    ("select-update", "a = f32[4] dynamic-update-slice(x, v, k); ROOT r = f32[4] select(p, a, x)",
     f"{P_K}; {X_K}; b = f32[1] select(pk, v, xk); ROOT r = f32[4] dynamic-update-slice(x, b, k)"),
    ("select-update", "a = f32[4] dynamic-update-slice(x, v, k); ROOT r = f32[4] select(p, x, a)",
     f"{P_K}; {X_K}; b = f32[1] select(pk, xk, v); ROOT r = f32[4] dynamic-update-slice(x, b, k)"),
    ("select-update",
     "b = f32[1] negate(v); a = f32[4] dynamic-update-slice(x, v, k); a1 = f32[4] dynamic-update-slice(x, b, k);"
     "ROOT r = f32[4] select(p, a, a1)",
     f"{P_K}; {P_K.replace('pk', 'pk1')}; {X_K}; b = f32[1] negate(v); c1 = f32[1] select(pk1, xk, b); "
     f"w = f32[4] dynamic-update-slice(x, c1, k); wk = f32[1] dynamic-slice(w, k), dynamic_slice_sizes={{1}}; "
     "d1 = f32[1] select(pk, v, wk); ROOT r = f32[4] dynamic-update-slice(w, d1, k)"),
    ("scatter-one", f"{K1}; ROOT r = f32[4] scatter(x, k1, s), {SET_ONE}, to_apply=second",
     f"{INSIDE}; {X_K1}; new = f32[1] reshape(s); b = f32[1] select(inside, new, xk); ROOT r = f32[4] dynamic-update-slice(x, b, e0)"),
    ("scatter-one", f"{K1}; ROOT r = f32[4] scatter(x, k1, s), {SET_ONE}, to_apply=sum",
     f"{INSIDE}; {X_K1}; new = f32[1] reshape(s); all = f32[1] add(xk, new); b = f32[1] select(inside, all, xk);"
     "ROOT r = f32[4] dynamic-update-slice(x, b, e0)"),
    ("select-update", f"{K1}; a = f32[4] scatter(x, k1, s), {SET_ONE}, to_apply=second; ROOT r = f32[4] select(p, a, x)",
     f"{K1}; xk = f32[] gather(x, k1), {GET_ONE}; pk = pred[] gather(p, k1), {GET_ONE}; b = f32[] select(pk, s, xk);"
     f"ROOT r = f32[4] scatter(x, k1, b), {SET_ONE}, to_apply=second"),
    ("select-update", f"{K1}; a = f32[4] scatter(x, k1, s), {SET_ONE}, to_apply=sum; ROOT r = f32[4] select(p, a, x)",
     f"{K1}; zero = f32[] constant(-0); pk = pred[] gather(p, k1), {GET_ONE}; b = f32[] select(pk, s, zero);"
     f"ROOT r = f32[4] scatter(x, k1, b), {SET_ONE}, to_apply=sum"),
    ("iota-one", "ROOT r = s32[1,4] iota(), iota_dimension=0",
     f"a = s32[] constant(0); ROOT r = s32[1,4] {B}(a), dimensions={{}}"),
    ("get-dimension-size", "ROOT r = s32[] get-dimension-size(m), dimensions={1}", "ROOT r = s32[] constant(3)"),
    ("copy", "ROOT r = f32[4] copy(x)", "x"),
    ("reduce-of-ones", "ROOT r = f32[4] reduce(o, s), dimensions={0}, to_apply=sum",
     f"a = f32[4] {B}(s), dimensions={{}}; b = f32[4] reshape(o); ROOT r = f32[4] add(a, b)"),
    ("reduce-of-ones", "ROOT r = f32[4] reduce(x, s), dimensions={}, to_apply=sum",
     f"a = f32[4] {B}(s), dimensions={{}}; ROOT r = f32[4] add(a, x)"),
    ("reduce-of-none", "ROOT r = f32[2] reduce(e2, s), dimensions={1}, to_apply=sum",
     f"ROOT r = f32[2] {B}(s), dimensions={{}}"),
    ("sort-of-ones", "ROOT r = f32[1] sort(v), dimensions={0}, to_apply=less", "v"),
    ("dot-transpose-left",
     "a = f32[3,2] transpose(m), dimensions={1,0}; ROOT r = f32[2,2] dot(a, m3), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
     "ROOT r = f32[2,2] dot(m, m3), lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
    ("dot-transpose-right",
     "a = f32[3,2] transpose(n), dimensions={1,0}; ROOT r = f32[2,2] dot(m, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
     "ROOT r = f32[2,2] dot(m, n), lhs_contracting_dims={1}, rhs_contracting_dims={1}"),
    ("transpose-dot",
     "a = f32[2,2] dot(m, n), lhs_contracting_dims={1}, rhs_contracting_dims={1}; ROOT r = f32[2,2] transpose(a), dimensions={1,0}",
     "ROOT r = f32[2,2] dot(n, m), lhs_contracting_dims={1}, rhs_contracting_dims={1}"),
    ("transpose-dot",
     "a = f32[2,3,1,3] dot(m, t), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={}, rhs_contracting_dims={}; "
     "ROOT r = f32[1,3,2,3] transpose(a), dimensions={2,3,0,1}",
     "a = f32[2,1,3,3] dot(t, m), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={}, rhs_contracting_dims={}; "
     "ROOT r = f32[1,3,2,3] transpose(a), dimensions={1,2,0,3}"),
    ("slice-dot",
     "a = f32[4,4] dot(x, y), lhs_contracting_dims={}, rhs_contracting_dims={}; ROOT r = f32[1,4] slice(a), slice={[2:3], [0:4]}",
     "a = f32[1] slice(x), slice={[2:3]}; ROOT r = f32[1,4] dot(a, y), lhs_contracting_dims={}, rhs_contracting_dims={}"),
    ("slice-dot",  # the product is needed anyway
     "a = f32[4,4] dot(x, y), lhs_contracting_dims={}, rhs_contracting_dims={}; b = f32[1,4] slice(a), slice={[2:3], [0:4]}; "
     "ROOT r = (f32[4,4], f32[1,4]) tuple(a, b)",
     "a = f32[4,4] dot(x, y), lhs_contracting_dims={}, rhs_contracting_dims={}; b = f32[1,4] slice(a), slice={[2:3], [0:4]}; "
     "ROOT r = (f32[4,4], f32[1,4]) tuple(a, b)"),
    ("dot-of-none", "ROOT r = f32[2,3] dot(e2, e3), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
     f"a = f32[] constant(0); ROOT r = f32[2,3] {B}(a), dimensions={{}}"),
]  # fmt: skip

BY_NAME = {rule.name: rule for rule in RULES}


@pytest.mark.parametrize(("rule", "before", "after"), CASES, ids=[f"{i}-{case[0]}" for i, case in enumerate(CASES)])
def test_rule_alone(rule: str, before: str, after: str) -> None:
    given_module = module(before)
    rewritten = module(before)
    RuleSet([BY_NAME[rule]]).apply(rewritten)
    assert same_graph(rewritten, module(after, like=before)), rewritten.to_text()
    for seed in range(4):
        check_same_results(given_module, RuleSet([BY_NAME[rule]]).apply, inputs(given_module, seed))


def test_every_rule_has_a_case_and_a_name_of_its_own() -> None:
    assert {case[0] for case in CASES} == set(BY_NAME)
    assert len(BY_NAME) == len(RULES)


KNOWN_WINDOWS = [
    f"{index}; ROOT r = f32[2,3] scatter(m, w, s), update_window_dims={{}}, inserted_window_dims={{0,1}}, "
    f"scatter_dims_to_operand_dims={{1,0}}, index_vector_dim=0, to_apply={combiner}"
    for combiner in ("sum", "second")
    for index in (
        "w = s32[2] constant({2, 1})",
        "w = s32[2] constant({1, 2})",  # outside, as the next two
        "w = s32[2] constant({0, -1})",
        "two = s32[] constant(2); w = s32[2] broadcast(two), dimensions={}",
        "one = s32[] constant(1); w = s32[2] broadcast(one), dimensions={}",
    )
]
"""Scatters of one element at a constant index."""
ONE_WINDOW = [
    # A column of a matrix, and a slice of it.
    "l = s32[1] reshape(k); w = f32[2] slice(x), slice={[0:2]}; ROOT r = f32[2,3] scatter(m, l, w), update_window_dims={0}, "
    "inserted_window_dims={1}, scatter_dims_to_operand_dims={1}, index_vector_dim=0, to_apply=second",
    "l = s32[1] reshape(k); w = f32[1,2] slice(m), slice={[0:1], [0:2]}; ROOT r = f32[2,3] scatter(m, l, w), "
    "update_window_dims={0,1}, inserted_window_dims={}, scatter_dims_to_operand_dims={1}, index_vector_dim=0, to_apply=largest",
    # Index vectors of two components and of none, scalar indices, and a dimension of one vector.
    "l = s32[2] slice(i), slice={[0:2]}; ROOT r = f32[2,3] scatter(m, l, s), update_window_dims={}, inserted_window_dims={0,1}, "
    "scatter_dims_to_operand_dims={1,0}, index_vector_dim=0, to_apply=sum",
    "l = s32[0] slice(i), slice={[0:0]}; w = f32[1,2] slice(m), slice={[0:1], [0:2]}; ROOT r = f32[2,3] scatter(m, l, w), "
    "update_window_dims={0,1}, inserted_window_dims={}, scatter_dims_to_operand_dims={}, index_vector_dim=0, to_apply=sum",
    "ROOT r = f32[4] scatter(x, k, s), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
    "index_vector_dim=0, to_apply=sum",
    "l = s32[1] reshape(k); ROOT r = f32[4] scatter(x, l, v), update_window_dims={}, inserted_window_dims={0}, "
    "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=second",
    # Unsigned indices, and a type that cannot represent the last one.
    "l = u32[1] slice(u), slice={[0:1]}; ROOT r = f32[4] scatter(x, l, s), update_window_dims={}, inserted_window_dims={0}, "
    "scatter_dims_to_operand_dims={0}, index_vector_dim=0, to_apply=second",
    "l = s8[] convert(k); b = f32[300] broadcast(s), dimensions={}; ROOT r = f32[300] scatter(b, l, s), update_window_dims={}, "
    "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=0, to_apply=sum",
    *KNOWN_WINDOWS,
]  # fmt: skip


@pytest.mark.parametrize("body", KNOWN_WINDOWS)
def test_scatters_at_constant_indices_choose_nothing(body: str) -> None:
    after = module(body)
    RuleSet([BY_NAME["scatter-one"]]).apply(after)
    assert {i.opcode for i in after.entry.instructions}.isdisjoint({"select", "compare", "slice"})


@pytest.mark.parametrize("body", ONE_WINDOW)
def test_scatters_of_one_window_are_updates(body: str) -> None:
    before = module(body)
    for seed in range(12):
        after = check_same_results(before, RuleSet([BY_NAME["scatter-one"]]).apply, inputs(before, seed))
        assert "scatter" not in {i.opcode for i in after.entry.instructions}


UNTOUCHED = [
    "ROOT r = f32[4] add(x, f0)",  # -0 + 0 = 0
    "ROOT r = f32[4] subtract(x, f_0)",
    "ROOT r = f32[4] multiply(x, f0)",
    "ROOT r = f32[4] subtract(x, x)",
    "ROOT r = f32[4] divide(x, f3)",
    "ROOT r = s32[4] divide(i, i2)",  # rounds toward zero
    "ROOT r = f32[4] power(x, fhalf)",  # (-0) ** 0.5 = 0, (-inf) ** 0.5 = inf
    "ROOT r = f64[4] power(d, d2)",
    "a = pred[4] compare(x, y), direction=LT; ROOT r = pred[4] not(a)",  # NaN
    "ROOT r = pred[4] compare(x, x), direction=EQ",
    "ROOT r = f32[4] maximum(x, finf)",
    "a = f32[4] add(x, f1); ROOT r = f32[4] add(a, f2)",  # not associative
    "a = bf16[4] convert(x); ROOT r = f32[4] convert(a)",
    "ROOT r = f32[4] multiply(x, x)",
    # An empty array has no window of one element; nothing is written to a scalar.
    "e0 = s32[0] slice(i), slice={[0:0]}; l = s32[0,0] reshape(e0); n5 = s32[] constant(5); b = pred[] compare(k, n5), direction=LT; a = f32[] scatter(s, l, e), update_window_dims={}, "
    "inserted_window_dims={}, scatter_dims_to_operand_dims={}, index_vector_dim=0, to_apply=sum; ROOT r = f32[] select(b, a, s)",
    f"{K1}; ROOT r = f32[0] scatter(e, k1, s), {SET_ONE}, to_apply=second",
    "l = s32[0] slice(i), slice={[0:0]}; b = pred[0] slice(p), slice={[0:0]}; a = f32[0] scatter(e, l, e), update_window_dims={}, "
    "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum; ROOT r = f32[0] select(b, a, e)",
    # The update has another user, or is of another array.
    "a = f32[4] dynamic-update-slice(x, v, k); b = f32[4] select(p, a, x); ROOT r = (f32[4], f32[4]) tuple(a, b)",
    "a = f32[4] dynamic-update-slice(x, v, k); ROOT r = f32[4] select(p, a, y)",
]  # fmt: skip


@pytest.mark.parametrize("body", UNTOUCHED)
def test_inexact_rewrites_are_not_made(body: str) -> None:
    before = module(body)
    assert AlgebraicSimplifier().apply(before).total() == 0


def test_slices_of_batches_of_products() -> None:
    """Batches are sliced in both operands, rows and columns in one."""
    batches = hl.parse("""HloModule m
ENTRY e { x = f32[3,8,5] parameter(0)
  y = f32[3,5,9] parameter(1)
  d = f32[3,8,9] dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}
  ROOT r = f32[2,3,7] slice(d), slice={[1:3], [0:8:3], [2:9]} }""")
    after = check_same_results(batches, RuleSet([BY_NAME["slice-dot"]]).apply, inputs(batches))
    assert [i.shape.dimensions for i in after.entry.instructions if i.opcode == "dot"] == [(2, 3, 7)]


def test_complex_products_have_no_identity() -> None:
    """MUL-1: 1 * (inf + NaN i) is NaN + NaN i, so an update that multiplies by 1 changes the array."""
    text = """HloModule m
times { a = T[] parameter(0)
  b = T[] parameter(1)
  ROOT r = T[] multiply(a, b) }
ENTRY e { x = T[4] parameter(0)
  p = pred[] parameter(1)
  k = s32[2] parameter(2)
  u = T[2] parameter(3)
  s = T[4] scatter(x, k, u), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0},
    index_vector_dim=1, to_apply=times
  ROOT r = T[4] select(p, s, x) }"""
    applied = {t: AlgebraicSimplifier().run(hl.parse(text.replace("T[", f"{t}["))) for t in ("f32", "c64", "c128")}
    assert applied == {"f32": 1, "c64": 0, "c128": 0}


def test_broadcasting_as_written_by_jax_becomes_one_broadcast() -> None:
    before = module(
        "a = f32[4,1] reshape(x); b = f32[4,1] broadcast(a), dimensions={0,1}; c1 = f32[4] reshape(b);"
        "ROOT r = f32[4,8] broadcast(c1), dimensions={0}"
    )
    run_passes(before, simplification_pipeline(), verify=True)
    assert same_graph(before, module("ROOT r = f32[4,8] broadcast(x), dimensions={0}"))


def test_layouts_dynamic_shapes_and_control_edges_are_left_alone() -> None:
    bodies = [
        "a = f32[2,3]{0,1} copy(m); ROOT r = f32[2,3]{1,0} copy(a)",
        "two = s32[] constant(2); a = f32[<=4] set-dimension-size(x, two), dimensions={0}; ROOT r = f32[<=4] copy(a)",
        "a = f32[<=4] set-dimension-size(x, k), dimensions={0}; b = f32[2] slice(a), slice={[0:2]};"
        "b1 = f32[2] slice(a), slice={[2:4]}; ROOT r = f32[4] concatenate(b, b1), dimensions={0}",
        "a = f32[<=4] set-dimension-size(x, k), dimensions={0}; b = f32[1,4] reshape(a); ROOT r = f32[1,4] negate(b)",
        "a = f32[4] copy(x); ROOT r = f32[4] negate(x), control-predecessors={a}",
    ]
    for body in bodies:
        assert AlgebraicSimplifier().apply(module(body)).total() == 0, body


def test_the_replacement_keeps_the_metadata_and_the_sharding() -> None:
    before = module('ROOT r = f32[4] power(x, f2), sharding={replicated}, metadata={op_name="square"}')
    AlgebraicSimplifier().run(before)
    root = before.entry.root
    assert root.opcode == "multiply" and root.metadata == {"op_name": "square"} and root.sharding is not None


def test_rules_are_switched_off_by_name() -> None:
    before = module("ROOT r = s32[4] add(i, i0)")
    assert AlgebraicSimplifier(without=("add-zero",)).run(before) == 0
    with pytest.raises(ArgumentError, match="algsimp has no rule add-nothing; it has: .*add-zero"):
        AlgebraicSimplifier(without=("add-nothing",)).run(before)


def simplify(of: hl.Module) -> None:
    run_passes(of, simplification_pipeline(), verify=True)


@given(st.integers(0, 10**6))
def test_random_programs_mean_the_same_after_simplification(seed: int) -> None:
    case = draw_case(seed)
    reference = reference_of(case)
    assert reference is None or rewritten(case, reference, simplify, "simplify") is None


class MovesAndConstants(Generator):
    """Chains of operations that rules match: identities and special constants, sizes of 1, moves that cancel."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.element_type = self.pick([hl.f32, hl.f32, hl.f64, hl.bf16, hl.s32, hl.u8, hl.pred])

    def value(self) -> hl.XlaOp:
        sizes = self.rng.choice([1, 1, 2, 3], int(self.rng.integers(0, 4))).tolist()
        return self.parameter(self.element_type, sizes, special=True)

    def program(self) -> hl.Module:
        x = self.value()
        kept = [x]
        for _ in range(int(self.rng.integers(2, 10))):
            x = getattr(self, self.pick(["move", "move", "combine", "combine", "slice"]))(x)
            kept.append(x)
        return self.builder.build(self.builder.tuple(x, self.pick(kept))).module

    def move(self, x: hl.XlaOp) -> hl.XlaOp:
        b, rank, sizes = self.builder, x.shape.rank, list(x.shape.dimensions)
        step = self.rng.integers(5)
        if step == 0:
            return b.transpose(x, self.rng.permutation(rank).tolist())
        if step == 1:
            return b.reshape(x, [n for n in sizes if n != 1])
        if step == 2 and rank < 5:
            sizes.insert(int(self.rng.integers(rank + 1)), 1)
            return b.reshape(x, sizes)
        if step == 3 and rank < 5 and x.shape.element_count < 300:
            return b.broadcast(x, [int(self.rng.integers(1, 3))])
        return b.rev(x, [d for d in range(rank) if self.rng.random() < 0.4])

    def combine(self, x: hl.XlaOp) -> hl.XlaOp:
        b = self.builder
        if self.element_type.is_pred:
            y = b.constant(np.asarray(bool(self.rng.random() < 0.5))) if self.rng.random() < 0.6 else b.not_(x)
            return getattr(b, self.pick(["and_", "or_", "xor"]))(*self.either(y, x))
        value = self.pick(
            [0.0, -0.0, 1.0, 2.0, 8.0] + ([-1.0, np.inf, -np.inf] if self.element_type.is_float else [3, 255])
        )
        y = self.pick([x, b.neg(x), *[b.constant(np.asarray(value).astype(self.element_type.dtype))] * 4])
        y = b.broadcast(y, x.shape.dimensions) if y.shape.is_scalar else y
        name = self.pick(["add", "sub", "mul", "div", "max", "min", "pow", "rem", "abs", "neg"])
        if name in ("abs", "neg"):
            return b.neg(x) if self.element_type is hl.u8 else getattr(b, name)(x)
        return getattr(b, name)(*self.either(y, x))

    def either(self, y: hl.XlaOp, x: hl.XlaOp) -> tuple[hl.XlaOp, hl.XlaOp]:
        return (x, y) if self.rng.random() < 0.7 else (y, x)

    def slice(self, x: hl.XlaOp) -> hl.XlaOp:
        b, sizes = self.builder, list(x.shape.dimensions)
        if not sizes:
            return x
        step = self.rng.integers(4)
        if step == 0:
            starts = [int(self.rng.integers(0, n + 1)) for n in sizes]
            limits = [int(self.rng.integers(s, n + 1)) for s, n in zip(starts, sizes)]
            return b.slice(x, starts, limits, self.rng.integers(1, 3, len(sizes)).tolist())
        if step == 1:
            return b.concat_in_dim([x, x], int(self.rng.integers(len(sizes)))) if x.shape.element_count < 300 else x
        if step == 2:
            zero = b.constant(np.zeros((), self.element_type.dtype))
            return b.pad(x, zero, [PaddingDimension(int(self.rng.integers(0, 2)), 0, 0) for _ in sizes])
        starts = [b.constant(np.int32(self.rng.integers(-1, n + 1))) for n in sizes]
        return b.dynamic_slice(x, starts, [int(self.rng.integers(0, n + 1)) for n in sizes])


@given(st.integers(0, 10**6))
def test_chains_of_moves_and_constants_mean_the_same(seed: int) -> None:
    generator = MovesAndConstants(seed)
    check_same_results(generator.program(), simplify, generator.inputs)
