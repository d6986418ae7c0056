"""collective-dimensions: transposes operands of collectives so that the block of each device is contiguous."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from hloom.ir import Instruction, Module
from hloom.ops.transpose import Transpose
from hloom.passes.op_builder import Expander, OpBuilder, expand_all
from hloom.shape import Shape


@dataclass(frozen=True)
class CollectiveDimensions:
    """Before: all-gather(%x), dimensions={1}. After: transpose(all-gather(transpose(%x)), dimensions={0}).

    Reduce-scatter and all-to-all likewise. The blocks of the devices are then contiguous, as MPI needs them.
    """

    name: ClassVar[str] = "collective-dimensions"

    def run(self, module: Module) -> int:
        """Transposes the collectives; returns their number."""
        return expand_all(module, _EXPANDERS)


def _along(dimension: str) -> Expander:
    """Returns the expander of collectives whose field `dimension` has the dimension of blocks."""

    def expand(build: OpBuilder, old: Instruction, module: Module) -> Instruction | None:
        op: Any = old.op
        axis = getattr(op, dimension)
        if axis is None or all(math.prod(shape.dimensions[:axis]) <= 1 for shape in old.operand_shapes):
            return None
        forth = (axis, *(d for d in range(old.operand_shapes[0].rank) if d != axis))
        back = tuple(forth.index(d) for d in range(len(forth)))
        operands = [build(Transpose(permutation=forth), operand) for operand in old.operands]
        results = old.shape.elements if old.shape.is_tuple else (old.shape,)
        shapes = [Shape.array(s.element_type, [s.dimensions[d] for d in forth]) for s in results]
        shape = Shape.tuple_of(shapes) if old.shape.is_tuple else shapes[0]
        new = build(op.replace(**{dimension: 0}), *operands, shape=shape)
        if not old.shape.is_tuple:
            return build(Transpose(permutation=back), new)
        transposed = [build(Transpose(permutation=back), build.element(new, k)) for k in range(len(shapes))]
        return build.tuple(*transposed)

    return expand


_EXPANDERS: dict[str, Expander] = {
    "all-gather": _along("all_gather_dim"),
    "all-to-all": _along("split_dimension"),
    "reduce-scatter": _along("scatter_dimension"),
}
