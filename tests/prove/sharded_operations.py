"""Modules of one operation with random shardings of its operands and results, for proofs of partitioning."""

from __future__ import annotations

import re

import numpy as np

import hloom as hl
from hloom.fuzz.shardings import Shardings
from hloom.ops.operation import OPERATIONS, Operation
from hloom.shape import Shape
from hloom.sharding import Sharding, ShardingType

COMPUTATIONS = """
plus { a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT c = s32[] add(a, b) }
plus8 { a = s8[] parameter(0)
  b = s8[] parameter(1)
  ROOT c = s8[] add(a, b) }
times { a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT c = s32[] multiply(a, b) }
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
largest { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b) }
second8 { a = s8[] parameter(0)
  ROOT b = s8[] parameter(1) }
at_least { a = s8[] parameter(0)
  b = s8[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=GE }
less { a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT }
less2 { a = s32[] parameter(0)
  b = s32[] parameter(1)
  c = f32[] parameter(2)
  d = f32[] parameter(3)
  ROOT e = pred[] compare(a, b), direction=LT }
larger { av = s32[] parameter(0)
  ai = s32[] parameter(1)
  bv = s32[] parameter(2)
  bi = s32[] parameter(3)
  g = pred[] compare(av, bv), direction=GE
  v = s32[] select(g, av, bv)
  i = s32[] select(g, ai, bi)
  ROOT t = (s32[], s32[]) tuple(v, i) }
body { t = (s32[], s32[4,2]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] add(i, s32[] constant(1))
  x = s32[4,2] get-tuple-element(t), index=1
  r = s32[4,2] reverse(x), dimensions={0}
  y = s32[4,2] add(x, r)
  ROOT r2 = (s32[], s32[4,2]) tuple(n, y) }
condition { t = (s32[], s32[4,2]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  ROOT r = pred[] compare(i, s32[] constant(2)), direction=LT }
looped { x = s32[4,2] parameter(0)
  t = (s32[], s32[4,2]) tuple(s32[] constant(0), x)
  ROOT r = (s32[], s32[4,2]) while(t), condition=condition, body=body }
turned { x = s8[4,4] parameter(0)
  ROOT r = s8[4,4] transpose(x), dimensions={1,0} }
summed { x = s8[4,4] parameter(0)
  z = s8[] constant(0)
  s = s8[4] reduce(x, z), dimensions={1}, to_apply=plus8
  ROOT r = s8[4,4] broadcast(s), dimensions={1} }
"""

TEMPLATES = """
s32[4,2] add(s32[4,2] p0, s32[4,2] p1)
s32[4,2] subtract(s32[4,2] p0, s32[4,2] p1)
f32[6,3] multiply(f32[6,3] p0, f32[6,3] p1)
s32[8] negate(s32[8] p0)
f32[4,4] tanh(f32[4,4] p0)
f32[4,2] select(pred[4,2] p0, f32[4,2] p1, f32[4,2] p2)
f32[4,2] clamp(f32[] p0, f32[4,2] p1, f32[] p2)
pred[5,4] compare(s32[5,4] p0, s32[5,4] p1), direction=LE
s16[4,2] convert(s32[4,2] p0)
s32[4,2] bitcast-convert(f32[4,2] p0)
c64[4,2] complex(f32[4,2] p0, f32[4,2] p1)
s32[4,2,3] broadcast(s32[4,3] p0), dimensions={0,2}
s32[4,4] broadcast(s32[4] p0), dimensions={1}
s32[2,4] broadcast(s32[] p0), dimensions={}
s32[4,6] iota(), iota_dimension=1
s32[7,2] iota(), iota_dimension=0
s32[4,2,3] transpose(s32[2,3,4] p0), dimensions={2,0,1}
s32[8,4] copy(s32[8,4] p0)
s32[4,4] reverse(s32[4,4] p0), dimensions={0,1}
s32[6,3] reverse(s32[6,3] p0), dimensions={0}
s32[4,6] reshape(s32[4,2,3] p0)
s32[24] reshape(s32[4,6] p0)
s32[2,2,6] reshape(s32[4,6] p0)
s32[4,1,6] reshape(s32[2,2,6] p0)
s32[8,3] reshape(s32[4,6] p0)
s32[6,4] bitcast(s32[4,6] p0)
s32[4,4] slice(s32[4,8] p0), slice={[0:4], [1:8:2]}
s32[2,4] slice(s32[7,4] p0), slice={[4:6], [0:4]}
s32[4,3] dynamic-slice(s32[4,6] p0, s32[] p1, s32[] p2), dynamic_slice_sizes={4,3}
s32[2,4] dynamic-slice(s32[4,4] p0, s32[] p1, s32[] p2), dynamic_slice_sizes={2,4}
s32[4,4] dynamic-update-slice(s32[4,4] p0, s32[4,2] p1, s32[] p2, s32[] p3)
s32[4,4] dynamic-update-slice(s32[4,4] p0, s32[4,4] p1, s32[] p2, s32[] p3)
s32[4,6] pad(s32[4,3] p0, s32[] p1), padding=0_0x1_0_1
s32[5,2] pad(s32[6,2] p0, s32[] p1), padding=-2_1x0_0
s32[4,6] concatenate(s32[4,2] p0, s32[4,4] p1), dimensions={1}
s32[8,2] concatenate(s32[4,2] p0, s32[4,2] p1), dimensions={0}
s32[8,4] gather(s32[4,4] p0, s32[8,1] p1), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,4}
s32[4,2] gather(s32[4,6] p0, s32[4,1] p1), offset_dims={1}, collapsed_slice_dims={}, start_index_map={1}, operand_batching_dims={0}, start_indices_batching_dims={0}, index_vector_dim=1, slice_sizes={1,2}
s8[4,4] scatter(s8[4,4] p0, s32[2,1] p1, s8[2,4] p2), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=plus8
s8[4,2] scatter(s8[4,2] p0, s32[4] p1, s8[4,2] p2), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=plus8
s8[4,2] scatter(s8[4,2] p0, s32[2,1] p1, s8[2,2] p2), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=second8
s8[4,4] scatter(s8[4,4] p0, s32[4,1] p1, s8[4,2] p2), update_window_dims={1}, inserted_window_dims={}, scatter_dims_to_operand_dims={1}, input_batching_dims={0}, scatter_indices_batching_dims={0}, index_vector_dim=1, to_apply=plus8
s32[4] reduce(s32[4,4] p0, s32[] p1), dimensions={1}, to_apply=plus
s32[] reduce(s32[4,4] p0, s32[] p1), dimensions={0,1}, to_apply=plus
s32[2] reduce(s32[7,2] p0, s32[] p1), dimensions={0}, to_apply=plus
s32[4] reduce(s32[2,4] p0, s32[] p1), dimensions={0}, to_apply=times
f32[4] reduce(f32[4,4] p0, f32[] p1), dimensions={0}, to_apply=sum
f32[2] reduce(f32[8,2] p0, f32[] p1), dimensions={0}, to_apply=largest
(s32[4], s32[4]) reduce(s32[4,4] p0, s32[4,4] p1, s32[] p2, s32[] p3), dimensions={1}, to_apply=larger
s32[4,4] reduce-window(s32[4,4] p0, s32[] p1), window={size=1x2 pad=0_0x1_0}, to_apply=plus
s32[2,4] reduce-window(s32[4,4] p0, s32[] p1), window={size=2x1 stride=2x1}, to_apply=plus
s32[4,2] map(s32[4,2] p0, s32[4,2] p1), dimensions={0,1}, to_apply=times
s32[4,2] dot(s32[4,4] p0, s32[4,2] p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
s32[2,2,4] dot(s32[2,2,2] p0, s32[2,2,4] p1), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}
f32[4,2] dot(f32[4,4] p0, f32[4,2] p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
s32[] dot(s32[8] p0, s32[8] p1), lhs_contracting_dims={0}, rhs_contracting_dims={0}
s32[3] dot(s32[3,5] p0, s32[5] p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
s32[4,4] sort(s32[4,4] p0), dimensions={1}, to_apply=less
(s32[3,4], f32[3,4]) sort(s32[3,4] p0, f32[3,4] p1), dimensions={0}, to_apply=less2
(s32[], s32[4,2]) call(s32[4,2] p0), to_apply=looped
s8[4,4] conditional(pred[] p0, s8[4,4] p1, s8[4,4] p2), true_computation=turned, false_computation=summed
s8[4,4] call(s8[4,4] p0), to_apply=summed
s32[4,2] opt-barrier(s32[4,2] p0)
s32[4,2,2] convolution(s32[4,3,2] p0, s32[2,2,2] p1), window={size=2}, dim_labels=b0f_0io->b0f
s32[2,3,4] convolution(s32[2,3,4] p0, s32[1,4,4] p1), window={size=1}, dim_labels=b0f_0io->b0f
s32[2,2,4] convolution(s32[2,3,4] p0, s32[2,1,4] p1), window={size=2}, dim_labels=b0f_0io->b0f, feature_group_count=4
s8[4,4] select-and-scatter(s8[4,4] p0, s8[4,2] p1, s8[] p2), window={size=1x2 stride=1x2}, select=at_least, scatter=plus8
(s8[4,2], s32[4,2]) topk(s8[4,4] p0), k=2, largest=true
c64[4,2,4] fft(c64[4,2,4] p0), fft_type=FFT, fft_length={4}
f32[4,2,2] cholesky(f32[4,2,2] p0), lower=true
f32[2,2,4] triangular-solve(f32[2,2,2] p0, f32[2,2,4] p1), left_side=true, lower=true, transpose_a=NO_TRANSPOSE
"""


def templates() -> list[str]:
    """Instructions, with the shapes of their operands."""
    return TEMPLATES.strip().splitlines()


def opcode_of(template: str) -> str:
    return (
        re.sub(r"^.*?\)? ([a-z-]+)\(.*$", r"\1", template) if template[0] == "(" else template.split("(")[0].split()[1]
    )


def operation_of(template: str) -> type[Operation]:
    return OPERATIONS[opcode_of(template)]


def unsharded(template: str) -> hl.Module:
    """The module of one instruction, whose operands are parameters and whose result is in a tuple."""
    named = re.findall(r"(\([^()]*\)|\w+\[[\d,]*\]) (p\d+)", template)
    line = template
    for shape, name in named:
        line = line.replace(f"{shape} {name}", name)
    parameters = "\n".join(f"{name} = {shape} parameter({name[1:]})" for shape, name in named)
    result = template[: template.index(f" {opcode_of(template)}(")]
    parts = result.strip("()").split(", ") if result[0] == "(" else [result]
    elements = [f"e{k} = {part} get-tuple-element(r), index={k}" for k, part in enumerate(parts)]
    names = [f"e{k}" for k in range(len(parts))] if result[0] == "(" else ["r"]
    lines = [parameters, f"r = {line}", *(elements if result[0] == "(" else [])]
    lines.append(f"ROOT t = ({', '.join(parts)}) tuple({', '.join(names)})")
    return hl.parse(f"HloModule m\n{COMPUTATIONS}\nENTRY e {{\n" + "\n".join(lines) + "\n}\n")


def sharded(template: str, seed: int) -> tuple[hl.Module, int]:
    """The module with random shardings of parameters and results, on a mesh of 2 to 4 partitions."""
    rng = np.random.default_rng(seed)
    count = int(rng.choice([2, 3, 4, 4, 4]))
    draws = Shardings(rng, count, uneven=0.3)
    module = unsharded(template)
    for parameter in module.entry.parameters:
        parameter.sharding = _drawn(draws, parameter.shape)
    if rng.random() < 0.7:
        module.entry.root.sharding = _drawn(draws, module.entry.root.shape)
    return module, count


def _drawn(draws: Shardings, shape: Shape) -> Sharding:
    if shape.is_tuple:
        return Sharding(ShardingType.TUPLE, tuple_shardings=tuple(_drawn(draws, e) for e in shape.elements))
    return draws.draw(shape)
