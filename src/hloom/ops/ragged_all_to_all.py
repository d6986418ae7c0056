"""Exchange of slices whose sizes are known at run time (COLL-7)."""

from __future__ import annotations

from hloom.ops.context import Context
from hloom.ops.replica_groups import Collective
from hloom.ops.rules import check_array
from hloom.shape import Shape
from hloom.values import Array


class RaggedAllToAll(Collective, opcode="ragged-all-to-all"):
    """Exchanges slices of different sizes along dimension 0 (a later addition to XLA).

    Rows `input_offsets[i]` to `input_offsets[i] + send_sizes[i]` of `operand` go to member i, into its copy of `output`
    from row `output_offsets[i]`; rows of `output` that nobody writes stay. The result has the shape of `output`.
    Mixtures of experts send tokens to the devices of their experts with it: how many go where is known only at run
    time.

    Offsets and sizes are vectors of one shape, with an entry for each member; a multiple of that many entries sends
    several slices to each. Rows outside the arrays are an error at run time.
    """

    operands = {
        "operand": "rows to send",
        "output": "array into which received rows are written",
        "input_offsets": "first row for each member",
        "send_sizes": "number of rows for each member",
        "output_offsets": "row of each member's `output` at which the rows sent to it start",
        "recv_sizes": "number of rows from each member",
    }

    def infer(self, *operands: Shape) -> Shape:
        check_array(self, "COLL-7", *operands)
        operand, output, *vectors = operands
        if operand.rank < 1 or operand.element_type is not output.element_type:
            self.reject("COLL-7", f"takes arrays of one type with rows, got {operand} and {output}")
        if operand.dimensions[1:] != output.dimensions[1:] or operand.rank != output.rank:
            self.reject("COLL-7", f"rows of operand and output must agree, got {operand} and {output}")
        for vector in vectors:
            if not vector.element_type.is_integer or not vector.compatible(vectors[0]) or vector.rank not in (1, 2):
                self.reject("COLL-7", f"offsets and sizes are integers of one shape and rank 1 or 2, got {vector}")
        return output.without_layout()

    def evaluate(self, ctx: Context, *operands: Array) -> Array:
        operand, output, input_offsets, send_sizes, output_offsets, _ = operands
        members = self.exchange(ctx, (operand, input_offsets, send_sizes, output_offsets))
        position = self.position(ctx)
        per_member = max(1, len(input_offsets) // len(members))
        result = output.copy()
        for rows, starts, sizes, targets in members:
            for k in range(position * per_member, (position + 1) * per_member):
                start, size, target = int(starts[k]), int(sizes[k]), int(targets[k])
                if min(start, size, target) < 0 or start + size > len(rows) or target + size > len(result):
                    self.reject("COLL-7", f"{size} rows from {start} to {target} lie outside the arrays")
                result[target : target + size] = rows[start : start + size]
        return result
