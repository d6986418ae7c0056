"""Random shardings of a module's parameters, results and values, for SPMD partitioning."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from hloom.ir import Instruction, Module
from hloom.ops.custom_call import CustomCall
from hloom.ops.structure import Tuple
from hloom.ops.traits import ControlFlow
from hloom.shape import Shape
from hloom.sharding import Sharding, ShardingType


class Shardings:
    """Draws shardings of arrays over some partitions."""

    def __init__(self, rng: np.random.Generator, count: int, uneven: float = 0.1) -> None:
        self.rng, self.count, self.uneven = rng, count, uneven

    def draw(self, shape: Shape) -> Sharding:
        """Returns a sharding of an array: tiles, uneven ones seldom, copies, or partial sums of integers."""
        tiles = [1] * shape.rank
        left = self.count
        for d in self.rng.permutation(shape.rank).tolist():
            is_even = self.rng.random() > self.uneven
            factors = [f for f in range(1, left + 1) if left % f == 0 and (shape.dimensions[d] % f == 0 or not is_even)]
            tiles[d] = int(self.rng.choice(factors)) if self.rng.random() < 0.7 and shape.dimensions[d] else 1
            left //= tiles[d]
        if left == self.count:
            partial_sums = self._may_have_partial_sums(shape, tiles)
            return Sharding(ShardingType.UNREDUCED if partial_sums else ShardingType.REPLICATED)
        kind = self.rng.random()
        dims = (*tiles, left) if left > 1 else tuple(tiles)
        replicate = left > 1
        last: tuple[ShardingType, ...] = ()
        if replicate and self._may_have_partial_sums(shape, tiles):
            replicate, last = False, (ShardingType.UNREDUCED,)
        elif kind < 0.15:
            devices = tuple(self.rng.permutation(self.count).tolist())
            return Sharding(ShardingType.OTHER, dims, devices, replicate_on_last_tile_dim=replicate)
        sizes = [n for n in dims if n > 1]
        order = self.rng.permutation(len(sizes)).tolist() if kind < 0.6 else [*range(len(sizes))]
        mesh = [0] * len(sizes)
        for k, axis in enumerate(order):
            mesh[axis] = sizes[k]
        return Sharding(
            ShardingType.OTHER,
            dims,
            iota_reshape_dims=tuple(mesh),
            iota_transpose_perm=tuple(order),
            replicate_on_last_tile_dim=replicate,
            last_tile_dims=last,
        )

    def _may_have_partial_sums(self, shape: Shape, tiles: Sequence[int]) -> bool:
        """Whether partial sums can be drawn: integers add up exactly in any order, and divisors in a chain make one
        mesh.
        """
        even = all(size % tile_count == 0 for size, tile_count in zip(shape.dimensions, tiles))
        return shape.element_type.is_integer and even and self.count != 6 and self.rng.random() < 0.5


def annotate(module: Module, rng: np.random.Generator, count: int) -> None:
    """Gives the parameters, some results and some intermediate values random shardings."""
    shardings = Shardings(rng, count)
    for parameter in module.entry.parameters:
        if parameter.shape.is_array:
            parameter.sharding = shardings.draw(parameter.shape)
    root = module.entry.root
    if isinstance(root.op, Tuple) and all(o.shape.is_array for o in root.operands) and rng.random() < 0.6:
        parts = tuple(shardings.draw(o.shape) for o in root.operands)
        root.sharding = Sharding(ShardingType.TUPLE, tuple_shardings=parts)
    for instruction in [*_constrainable(module)]:
        if rng.random() < 0.15:
            _constrain(instruction, shardings, rng)


def _constrainable(module: Module) -> Iterator[Instruction]:
    """Values of the entry and of loops and branches."""
    waiting = [module.entry]
    while waiting:
        for instruction in waiting.pop().instructions:
            if instruction.shape.is_array and not instruction.shape.is_dynamic:
                yield instruction
            if isinstance(instruction.op, ControlFlow):
                waiting += instruction.op.computations


def _constrain(instruction: Instruction, shardings: Shardings, rng: np.random.Generator) -> None:
    computation = instruction.parent
    assert computation is not None
    constraint = Instruction(f"{instruction.name}.constraint", instruction.shape, CustomCall(target_name="Sharding"))
    if any(i.name == constraint.name for i in computation.instructions):
        return
    instruction.replace_all_uses_with(constraint)
    constraint.operands.append(instruction)
    instruction.users[constraint] = None
    constraint.parent = computation
    computation.root = computation.root
    computation.instructions.insert(computation.instructions.index(instruction) + 1, constraint)
    constraint.sharding = shardings.draw(instruction.shape)
    if rng.random() < 0.5:
        constraint.backend_config = f"unspecified_dims=[{','.join(map(str, range(instruction.shape.rank)))}]"
