"""collective-dimensions: transposes operands of collectives so that the block of each device is contiguous."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

from hloom.ir import Instruction, Module
from hloom.ops.collectives import AllGather, AllToAll, ReduceScatter
from hloom.ops.operation import Operation
from hloom.ops.rules import result_shapes
from hloom.ops.traits import Start
from hloom.ops.transpose import Transpose
from hloom.passes.op_builder import Expanders, OpBuilder, expand_all
from hloom.shape import Shape
from hloom.system.records import record


@record
class CollectiveDimensions:
    """Before: all-gather(%x), dimensions={1}. After: transpose(all-gather(transpose(%x)), dimensions={0}).

    Reduce-scatter and all-to-all likewise. The blocks of the devices are then contiguous, as MPI needs them.
    """

    name: ClassVar[str] = "collective-dimensions"

    def run(self, module: Module) -> int:
        """Transposes the collectives; returns their number."""
        return expand_all(module, _EXPANDERS)


def _along(dimension: str) -> Callable[[Operation, OpBuilder, Instruction, Module], Instruction | None]:
    """Returns the expander of collectives whose field `dimension` has the dimension of blocks."""

    def expand(op: Operation, build: OpBuilder, old: Instruction, module: Module) -> Instruction | None:
        axis = getattr(op, dimension)
        if (
            axis is None
            or isinstance(op, Start)
            or all(math.prod(shape.dimensions[:axis]) <= 1 for shape in old.operand_shapes)
        ):
            return None
        forth = (axis, *(d for d in range(old.operand_shapes[0].rank) if d != axis))
        back = tuple(forth.index(d) for d in range(len(forth)))
        operands = [build(Transpose(permutation=forth), operand) for operand in old.operands]
        results = result_shapes(old.shape)
        shapes = [Shape.array(s.element_type, [s.dimensions[d] for d in forth]) for s in results]
        shape = Shape.tuple_of(shapes) if old.shape.is_tuple else shapes[0]
        new = build(op.replace(**{dimension: 0}), *operands, shape=shape)
        transposed = [build(Transpose(permutation=back), element) for element in build.elements(new)]
        return build.tuple(*transposed) if old.shape.is_tuple else transposed[0]

    return expand


_EXPANDERS = Expanders()
_EXPANDERS.add(AllGather, _along("all_gather_dim"))
_EXPANDERS.add(AllToAll, _along("split_dimension"))
_EXPANDERS.add(ReduceScatter, _along("scatter_dimension"))
