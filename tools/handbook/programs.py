"""Small HLO programs by opcode: those of the pictures, and examples of operations that no worked example shows."""

from __future__ import annotations

ADD = "add { a = s32[] parameter(0)\n  b = s32[] parameter(1)\n  ROOT c = s32[] add(a, b) }"
ADD_FLOATS = ADD.replace("s32", "f32")


def _entry(*lines: str, computations: str = "") -> str:
    body = "".join(f"  {line}\n" for line in lines)
    return f"{computations}\n\nENTRY main {{\n{body}}}".strip()


MOVEMENTS = {
    "bitcast": _entry("operand = s32[2,3]{1,0} parameter(0)", "ROOT result = s32[3,2]{0,1} bitcast(operand)"),
    "broadcast": _entry("operand = s32[4] parameter(0)", "ROOT result = s32[3,4] broadcast(operand), dimensions={1}"),
    "concatenate": _entry(
        "x = s32[2,3] parameter(0)",
        "y = s32[2,2] parameter(1)",
        "ROOT result = s32[2,5] concatenate(x, y), dimensions={1}",
    ),
    "dynamic-reshape": _entry(
        "operand = s32[6] parameter(0)",
        "rows = s32[] constant(2)",
        "columns = s32[] constant(3)",
        "ROOT result = s32[<=2,<=3] dynamic-reshape(operand, rows, columns)",
    ),
    "dynamic-slice": _entry(
        "operand = s32[3,5] parameter(0)",
        "i = s32[] constant(1)",
        "j = s32[] constant(2)",
        "ROOT result = s32[2,2] dynamic-slice(operand, i, j), dynamic_slice_sizes={2,2}",
    ),
    "dynamic-update-slice": _entry(
        "operand = s32[3,5] parameter(0)",
        "update = s32[2,2] parameter(1)",
        "i = s32[] constant(1)",
        "j = s32[] constant(2)",
        "ROOT result = s32[3,5] dynamic-update-slice(operand, update, i, j)",
    ),
    "gather": _entry(
        "operand = s32[4,3] parameter(0)",
        "start_indices = s32[2] constant({3, 1})",
        "ROOT rows = s32[2,3] gather(operand, start_indices), offset_dims={1}, collapsed_slice_dims={0}, "
        "start_index_map={0}, index_vector_dim=1, slice_sizes={1,3}",
    ),
    "iota": _entry("ROOT result = s32[2,5] iota(), iota_dimension=1"),
    "pad": _entry(
        "operand = s32[3] parameter(0)",
        "zero = s32[] constant(0)",
        "ROOT result = s32[8] pad(operand, zero), padding=1_2_1",
    ),
    "reshape": _entry("operand = s32[2,6] parameter(0)", "ROOT result = s32[3,4] reshape(operand)"),
    "reverse": _entry("operand = s32[2,4] parameter(0)", "ROOT result = s32[2,4] reverse(operand), dimensions={1}"),
    "scatter": _entry(
        "operand = s32[4,3] parameter(0)",
        "scatter_indices = s32[2] constant({2, 0})",
        "updates = s32[2,3] parameter(1)",
        "ROOT result = s32[4,3] scatter(operand, scatter_indices, updates), update_window_dims={1}, "
        "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=replace",
        computations="replace { old = s32[] parameter(0)\n  ROOT new = s32[] parameter(1) }",
    ),
    "select": _entry(
        "pred = pred[2,4] constant({{1, 0, 1, 0}, {0, 1, 1, 0}})",
        "on_true = s32[2,4] parameter(0)",
        "on_false = s32[2,4] parameter(1)",
        "ROOT result = s32[2,4] select(pred, on_true, on_false)",
    ),
    "select-and-scatter": _entry(
        "operand = s32[2,6] parameter(0)",
        "source = s32[1,3] parameter(1)",
        "zero = s32[] constant(0)",
        "ROOT result = s32[2,6] select-and-scatter(operand, source, zero), window={size=2x2 stride=2x2}, select=ge, "
        "scatter=add",
        computations="ge { a = s32[] parameter(0)\n  b = s32[] parameter(1)\n"
        "  ROOT c = pred[] compare(a, b), direction=GE }\n\n" + ADD,
    ),
    "set-dimension-size": _entry(
        "operand = s32[2,5] parameter(0)",
        "size = s32[] constant(3)",
        "ROOT result = s32[2,<=5] set-dimension-size(operand, size), dimensions={1}",
    ),
    "slice": _entry("operand = s32[3,6] parameter(0)", "ROOT result = s32[2,3] slice(operand), slice={[1:3], [0:6:2]}"),
    "sort": _entry(
        "operand = s32[2,5] parameter(0)",
        "ROOT result = s32[2,5] sort(operand), dimensions={1}, to_apply=greater",
        computations="greater { a = s32[] parameter(0)\n  b = s32[] parameter(1)\n"
        "  ROOT c = pred[] compare(a, b), direction=GT }",
    ),
    "topk": _entry(
        "operand = s32[2,5] parameter(0)", "ROOT result = (s32[2,2], s32[2,2]) topk(operand), k=2, largest=true"
    ),
    "transpose": _entry(
        "operand = s32[2,4] parameter(0)", "ROOT result = s32[4,2] transpose(operand), dimensions={1,0}"
    ),
}
"""Programs whose result consists of elements of the operands."""

READS = {
    "convolution": _entry(
        "lhs = s32[1,4,5,1] parameter(0)",
        "rhs = s32[2,3,1,1] parameter(1)",
        "ROOT result = s32[1,3,3,1] convolution(lhs, rhs), window={size=2x3}, dim_labels=b01f_01io->b01f",
    ),
    "dot": _entry(
        "lhs = s32[3,4] parameter(0)",
        "rhs = s32[4,3] parameter(1)",
        "ROOT result = s32[3,3] dot(lhs, rhs), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    ),
    "ragged-dot": _entry(
        "lhs = f32[5,2] parameter(0)",
        "rhs = f32[2,2,3] parameter(1)",
        "group_sizes = s32[2] constant({3, 2})",
        "ROOT result = f32[5,3] ragged-dot(lhs, rhs, group_sizes), lhs_contracting_dims={1}, "
        "rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}",
    ),
    "reduce": _entry(
        "operand = s32[3,4] parameter(0)",
        "zero = s32[] constant(0)",
        "ROOT sums = s32[3] reduce(operand, zero), dimensions={1}, to_apply=add",
        computations=ADD,
    ),
    "reduce-window": _entry(
        "operand = s32[4,6] parameter(0)",
        "zero = s32[] constant(0)",
        "ROOT sums = s32[3,3] reduce-window(operand, zero), window={size=2x2 stride=1x2}, to_apply=add",
        computations=ADD,
    ),
    "scaled-dot": _entry(
        "lhs_scale = f32[2,2] parameter(0)",
        "lhs = f32[2,4] parameter(1)",
        "rhs = f32[4,2] parameter(2)",
        "one = f32[] constant(1)",
        "ROOT result = f32[2,2] scaled-dot(lhs, rhs, lhs_scale, one), lhs_contracting_dims={1}, "
        "rhs_contracting_dims={0}",
    ),
    "scan": _entry(
        "x = s32[6] parameter(0)",
        "zero = s32[] constant(0)",
        "ROOT sums = (s32[6], s32[]) scan(x, zero), dimensions={0}, num_carries=1, to_apply=step",
        computations="step { x = s32[] parameter(0)\n  sum = s32[] parameter(1)\n  next = s32[] add(x, sum)\n"
        "  ROOT both = (s32[], s32[]) tuple(next, next) }",
    ),
}
"""Programs of which the picture shows what one element of the result is computed from."""

EXCHANGES = {
    "all-gather": _entry(
        "x = s32[2] parameter(0)", "ROOT result = s32[6] all-gather(x), replica_groups={{0,1,2}}, dimensions={0}"
    ),
    "all-reduce": _entry(
        "x = s32[3] parameter(0)",
        "ROOT sums = s32[3] all-reduce(x), replica_groups={{0,1,2}}, to_apply=add",
        computations=ADD,
    ),
    "all-to-all": _entry(
        "x = s32[6] parameter(0)", "ROOT result = s32[6] all-to-all(x), replica_groups={{0,1,2}}, dimensions={0}"
    ),
    "collective-broadcast": _entry(
        "x = s32[3] parameter(0)", "ROOT result = s32[3] collective-broadcast(x), replica_groups={{1,0,2}}"
    ),
    "collective-permute": _entry(
        "x = s32[3] parameter(0)",
        "ROOT result = s32[3] collective-permute(x), source_target_pairs={{0,1},{1,2},{2,0}}",
    ),
    "ragged-all-to-all": _entry(
        "x = s32[3] parameter(0)",
        "zero = s32[] constant(0)",
        "output = s32[4] broadcast(zero), dimensions={}",
        "input_offsets = s32[2] constant({0, 1})",
        "send_sizes = s32[2] constant({1, 2})",
        "replica = u32[] replica-id()",
        "id = s32[] convert(replica)",
        "ids = s32[2] broadcast(id), dimensions={}",
        "output_offsets = s32[2] multiply(ids, send_sizes)",
        "one = s32[2] constant({1, 1})",
        "recv_sizes = s32[2] add(ids, one)",
        "ROOT result = s32[4] ragged-all-to-all(x, output, input_offsets, send_sizes, output_offsets, recv_sizes), "
        "replica_groups={{0,1}}",
    ),
    "reduce-scatter": _entry(
        "x = s32[6] parameter(0)",
        "ROOT sums = s32[2] reduce-scatter(x), replica_groups={{0,1,2}}, dimensions={0}, to_apply=add",
        computations=ADD,
    ),
}
"""Programs of three replicas, or as many as their groups have."""

LOOP = _entry(
    "three = s32[] constant(3)",
    "ROOT result = s32[] while(three), condition=is_small, body=double",
    computations="is_small { x = s32[] parameter(0)\n  limit = s32[] constant(50)\n"
    "  ROOT small = pred[] compare(x, limit), direction=LT }\n\n"
    "double { x = s32[] parameter(0)\n  ROOT twice = s32[] add(x, x) }",
)

OTHERS = {
    "add-dependency": _entry(
        "x = f32[4] parameter(0)", "token = token[] after-all()", "ROOT same = f32[4] add-dependency(x, token)"
    ),
    "after-all": _entry(
        "x = f32[4] parameter(0)",
        "first = token[] after-all()",
        "second = token[] after-all()",
        "both = token[] after-all(first, second)",
        "ROOT same = f32[4] add-dependency(x, both)",
    ),
    "all-gather-start": _entry(
        "x = f32[2] parameter(0)",
        "started = (f32[2], f32[6]) all-gather-start(x), replica_groups={{0,1,2}}, dimensions={0}",
        "ROOT gathered = f32[6] all-gather-done(started)",
    ),
    "all-reduce-start": _entry(
        "x = f32[2] parameter(0)",
        "started = f32[2] all-reduce-start(x), replica_groups={{0,1,2}}, to_apply=add",
        "ROOT sums = f32[2] all-reduce-done(started)",
        computations=ADD_FLOATS,
    ),
    "async-start": _entry(
        "x = f32[4] parameter(0)",
        "started = ((f32[4]), f32[4], u32[]) async-start(x), calls=double",
        "running = ((f32[4]), f32[4], u32[]) async-update(started), calls=double",
        "ROOT result = f32[4] async-done(running), calls=double",
        computations="double { x = f32[4] parameter(0)\n  ROOT y = f32[4] add(x, x) }",
    ),
    "collective-permute-start": _entry(
        "x = f32[2] parameter(0)",
        "started = (f32[2], f32[2]) collective-permute-start(x), source_target_pairs={{0,1},{1,2},{2,0}}",
        "ROOT received = f32[2] collective-permute-done(started)",
    ),
    "constant": _entry("ROOT primes = s32[2,3] constant({{2, 3, 5}, {7, 11, 13}})"),
    "copy-start": _entry(
        "x = f32[4] parameter(0)",
        "started = (f32[4], f32[4], u32[]) copy-start(x)",
        "ROOT copied = f32[4] copy-done(started)",
    ),
    "custom-call": _entry(
        "x = f32[2] parameter(0)",
        "y = f32[2,3] parameter(1)",
        'ROOT z = f32[3,3] custom-call(x, y), custom_call_target="myfunc"',
    ),
    "domain": _entry(
        "x = f32[4] parameter(0)",
        'ROOT same = f32[4] domain(x), domain={kind="sharding", entry={replicated}, exit={replicated}}',
    ),
    "fusion": _entry(
        "x = f32[4] parameter(0)",
        "ROOT y = f32[4] fusion(x), kind=kLoop, calls=fused",
        computations="fused { x = f32[4] parameter(0)\n  squared = f32[4] multiply(x, x)\n"
        "  ROOT e = f32[4] exponential(squared) }",
    ),
    "infeed": _entry(
        "token = token[] after-all()",
        "received = (f32[2], token[]) infeed(token)",
        "x = f32[2] get-tuple-element(received), index=0",
        "next = token[] get-tuple-element(received), index=1",
        "ROOT sent = token[] outfeed(x, next), outfeed_shape=f32[2]",
    ),
    "copy": _entry("x = f32[2,3]{1,0} parameter(0)", "ROOT y = f32[2,3]{0,1} copy(x)"),
    "mulhi": _entry(
        "x = u32[2] constant({4294967295, 65536})", "y = u32[2] constant({2, 65536})", "ROOT high = u32[2] mulhi(x, y)"
    ),
    "optimization-barrier": _entry("x = f32[2] parameter(0)", "y = f32[2] opt-barrier(x)", "ROOT z = f32[2] add(y, y)"),
    "parameter": _entry("x = f32[2] parameter(0)", "y = f32[2] parameter(1)", "ROOT sum = f32[2] add(x, y)"),
    "partition-id": _entry("ROOT id = u32[] partition-id()"),
    "recv": _entry(
        "token = token[] after-all()",
        "started = (f32[2], u32[], token[]) recv(token), channel_id=1, is_host_transfer=true",
        "finished = (f32[2], token[]) recv-done(started), channel_id=1, is_host_transfer=true",
        "ROOT data = f32[2] get-tuple-element(finished), index=0",
    ),
    "rng-get-and-update-state": _entry("ROOT state = u64[2] rng-get-and-update-state(), delta=4"),
    "send": _entry(
        "x = f32[2] parameter(0)",
        "token = token[] after-all()",
        "started = (f32[2], u32[], token[]) send(x, token), channel_id=1, is_host_transfer=true",
        "ROOT sent = token[] send-done(started), channel_id=1, is_host_transfer=true",
    ),
    "stochastic-convert": _entry(
        "x = f32[4] parameter(0)",
        "random = u32[4] constant({0, 1073741824, 2147483648, 3221225472})",
        "ROOT rounded = s8[4] stochastic-convert(x, random)",
    ),
}
OTHERS |= {
    function: _entry(f"x = f32[3] constant({{{values}}})", f"ROOT y = f32[3] {function}(x)")
    for function, values in {
        "acos": "0, 0.5, 1",
        "acosh": "1, 2, 10",
        "asin": "0, 0.5, 1",
        "asinh": "0, 1, 10",
        "atanh": "0, 0.5, 0.75",
        "cosh": "0, 1, 2",
        "sinh": "0, 1, 2",
    }.items()
}
"""Programs of operations that the builder does not make, or that no small worked example shows."""
