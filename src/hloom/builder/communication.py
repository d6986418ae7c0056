"""Builder methods for collectives, infeed, channels and random numbers (spec 2, 3, 4, 16, 23, 88, 93, 97, 102 to 104,
108).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hloom.builder.arguments import integer, makes, shape_of
from hloom.builder.core import BuilderCore
from hloom.builder.xla_op import Computationlike, XlaOp
from hloom.errors import RuleError
from hloom.ops.attributes import RandomDistribution
from hloom.ops.communication import Infeed, Recv
from hloom.ops.kinds import REPLICA_GROUPS
from hloom.ops.operation import OPERATIONS
from hloom.shape import Shape
from hloom.types import PrimitiveType


class CommunicationMethods(BuilderCore):
    """Methods for collectives, infeed, channels and random numbers."""

    @makes("all-gather", operand="array", shard_count="size of each group")
    def all_gather(
        self,
        operand: Any,
        all_gather_dim: int,
        shard_count: int,
        replica_groups: Sequence[Sequence[int]] = (),
        channel_id: int | None = None,
    ) -> XlaOp:
        """Concatenates the operands of the `shard_count` members of each group along a dimension (ALLGATHER-1)."""
        operand = self._array(operand, "all-gather", "ALLGATHER-5")
        _check_split("all-gather", "ALLGATHER-5", operand.shape, all_gather_dim, "all_gather_dim")
        if integer("all-gather", "shard_count", shard_count) < 1:
            raise RuleError("all-gather", "ALLGATHER-3", f"shard_count must be >= 1, got {shard_count}")
        op = OPERATIONS["all-gather"](
            all_gather_dim=all_gather_dim, replica_groups=replica_groups, channel_id=channel_id
        )
        return self._add(
            op,
            (operand,),
            _resized(operand.shape, all_gather_dim, operand.shape.dimensions[all_gather_dim] * shard_count),
        )

    @makes("all-reduce", operand="array, or tuple of arrays")
    def all_reduce(
        self,
        operand: Any,
        computation: Computationlike,
        replica_groups: Sequence[Sequence[int]] = (),
        channel_id: int | None = None,
    ) -> XlaOp:
        """Reduces the operands of the members of each group element by element; accepts tuples (ALLREDUCE-1, -2)."""
        operand = self._operand(operand)
        arrays = self._tuple_elements(operand, "all-reduce", "ALLREDUCE-2")
        by_type: dict[PrimitiveType, list[int]] = {}
        for i, array in enumerate(arrays):
            by_type.setdefault(array.shape.element_type, []).append(i)
        reduced: dict[int, XlaOp] = {}
        for members in by_type.values():
            group = [arrays[i] for i in members]
            op = OPERATIONS["all-reduce"](
                computation=self._reducer(computation, group[:1]),
                replica_groups=replica_groups,
                channel_id=channel_id,
            )
            result = self._add(op, group)
            for k, i in enumerate(members):
                reduced[i] = self.get_tuple_element(result, k) if len(members) > 1 else result
        if not operand.shape.is_tuple:
            return reduced[0]
        return self.tuple(*(reduced[i] for i in range(len(arrays))))

    @makes("all-reduce", operand="array, or tuple of arrays")
    def cross_replica_sum(self, operand: Any, replica_groups: Sequence[Sequence[int]] = ()) -> XlaOp:
        """An AllReduce with addition (CROSSREPLICASUM-1)."""
        return self.all_reduce(operand, lambda x, y: x + y, replica_groups)

    @makes(
        "all-to-all",
        operand="array",
        split_dimension="dimension that is split into blocks",
        concat_dimension="dimension along which the received blocks are joined",
        split_count="number of blocks: the size of each group",
    )
    def all_to_all(
        self,
        operand: Any,
        split_dimension: int,
        concat_dimension: int,
        split_count: int,
        replica_groups: Sequence[Sequence[int]] = (),
    ) -> XlaOp:
        """Splits along one dimension, exchanges the blocks in each group, and concatenates along another (ALLTOALL-1,
        -2).
        """
        operand = self._operand(operand)
        shape = operand.shape
        if shape.is_tuple:
            raise RuleError("all-to-all", "ALLTOALL-5", f"takes an array, got {shape}")
        _check_split("all-to-all", "ALLTOALL-5", shape, split_dimension, "split_dimension")
        _check_split("all-to-all", "ALLTOALL-5", shape, concat_dimension, "concat_dimension")
        if integer("all-to-all", "split_count", split_count) < 1 or shape.dimensions[split_dimension] % split_count:
            raise RuleError(
                "all-to-all",
                "ALLTOALL-5",
                f"split_count {split_count} must divide dimension {split_dimension} of {shape}",
            )
        groups = REPLICA_GROUPS.normalize("all-to-all", "replica_groups", replica_groups)
        if any(len(group) != split_count for group in groups.groups):
            raise RuleError("all-to-all", "ALLTOALL-4", f"split_count {split_count} must be the size of each group")
        # HLO's tuple form implies the size of a group; its array form does not.
        block = shape.dimensions[split_dimension] // split_count
        blocks = []
        for i in range(split_count):
            starts, limits = [0] * shape.rank, list(shape.dimensions)
            starts[split_dimension], limits[split_dimension] = i * block, (i + 1) * block
            blocks.append(self.slice(operand, starts, limits))
        op = OPERATIONS["all-to-all"](replica_groups=replica_groups)
        received = self._add(op, blocks)
        return self.concat_in_dim([self.get_tuple_element(received, i) for i in range(split_count)], concat_dimension)

    @makes("reduce-scatter", operand="array, or tuple of arrays", shard_count="size of each group")
    def reduce_scatter(
        self,
        operand: Any,
        computation: Computationlike,
        scatter_dimension: int,
        shard_count: int,
        replica_groups: Sequence[Sequence[int]] = (),
        channel_id: int | None = None,
    ) -> XlaOp:
        """An AllReduce whose result is split along a dimension; member i of a group gets block i (REDUCESCATTER-1)."""
        operand = self._operand(operand)
        arrays = self._tuple_elements(operand, "reduce-scatter", "REDUCESCATTER-3")
        blocks = []
        for array in arrays:
            shape = array.shape
            _check_split("reduce-scatter", "REDUCESCATTER-4", shape, scatter_dimension, "scatter_dimension")
            size = shape.dimensions[scatter_dimension]
            if integer("reduce-scatter", "shard_count", shard_count) < 1 or size % shard_count:
                raise RuleError(
                    "reduce-scatter",
                    "REDUCESCATTER-4",
                    f"shard_count {shard_count} must divide dimension {scatter_dimension} of {shape}",
                )
            op = OPERATIONS["reduce-scatter"](
                scatter_dimension=scatter_dimension,
                computation=self._reducer(computation, [array]),
                replica_groups=replica_groups,
                channel_id=channel_id,
            )
            blocks.append(self._add(op, (array,), _resized(shape, scatter_dimension, size // shard_count)))
        return self.tuple(*blocks) if operand.shape.is_tuple else blocks[0]

    @makes("collective-permute", operand="array")
    def collective_permute(
        self, operand: Any, source_target_pairs: Sequence[tuple[int, int]], channel_id: int | None = None
    ) -> XlaOp:
        """Sends the operand of each source to its target; devices that are not a target get zeros
        (COLLECTIVEPERMUTE-1).
        """
        op = OPERATIONS["collective-permute"](source_target_pairs=source_target_pairs, channel_id=channel_id)
        return self._add(op, (self._operand(operand),))

    @makes("infeed", shape="shape of the item")
    def infeed(self, shape: Shape) -> XlaOp:
        """Reads an item of `shape` from the infeed queue; infeeds run in the order in which they are built (INFEED-1,
        -2).
        """
        item = self._add(Infeed(), (self._token("infeed"),), Infeed.result_of(shape_of(shape)))
        self._last_effect["infeed"] = self.get_tuple_element(item, 1).instruction
        return self.get_tuple_element(item, 0)

    @makes("outfeed")
    def outfeed(self, operand: Any) -> None:
        """Puts a value into the outfeed queue; outfeeds run in the order in which they are built (INFEED-4)."""
        operand = self._operand(operand)
        token = self._add(OPERATIONS["outfeed"](outfeed_shape=operand.shape), (operand, self._token("outfeed")))
        self._last_effect["outfeed"] = token.instruction

    def _token(self, kind: str) -> XlaOp:
        if kind not in self._last_effect:
            self._last_effect[kind] = self.after_all().instruction
        return XlaOp(self, self._last_effect[kind])

    @makes("recv", shape="shape of the data", channel_handle="number of the channel")
    def recv(self, shape: Shape, channel_handle: int) -> XlaOp:
        """Receives the operand of the Send of the same channel (RECV-1)."""
        context = Recv.result_of(shape_of(shape))
        receiving = self._add(Recv(channel_id=channel_handle), (self._token("channel"),), context)
        done = self._add(OPERATIONS["recv-done"](channel_id=channel_handle), (receiving,))
        self._last_effect["channel"] = self.get_tuple_element(done, 1).instruction
        return self.get_tuple_element(done, 0)

    @makes("send", channel_handle="number of the channel")
    def send(self, operand: Any, channel_handle: int) -> None:
        """Sends a value to the Recv of the same channel (SEND-1)."""
        sending = self._add(
            OPERATIONS["send"](channel_id=channel_handle), (self._operand(operand), self._token("channel"))
        )
        done = self._add(OPERATIONS["send-done"](channel_id=channel_handle), (sending,))
        self._last_effect["channel"] = done.instruction

    @makes("rng", a="lower bound, included: a scalar", b="upper bound, excluded: a scalar", shape="shape of the result")
    def rng_uniform(self, a: Any, b: Any, shape: Shape) -> XlaOp:
        """Random values, uniform over [a, b) (RNGUNIFORM-1)."""
        return self._rng(RandomDistribution.RNG_UNIFORM, a, b, shape)

    @makes("rng", mu="mean: a scalar", sigma="standard deviation: a scalar", shape="shape of the result")
    def rng_normal(self, mu: Any, sigma: Any, shape: Shape) -> XlaOp:
        """Random values of the normal distribution N(mu, sigma) (RNGNORMAL-1)."""
        return self._rng(RandomDistribution.RNG_NORMAL, mu, sigma, shape)

    def _rng(self, distribution: RandomDistribution, a: Any, b: Any, shape: Shape) -> XlaOp:
        shape = shape_of(shape)
        operands = [self._operand(x, shape.element_type) for x in (a, b)]
        return self._add(OPERATIONS["rng"](distribution=distribution), operands, shape)

    @makes("rng-bit-generator", shape="shape of the bits: an array of integers")
    def rng_bit_generator(self, algorithm: Any, initial_state: Any, shape: Shape) -> XlaOp:
        """Uniform random bits of `shape` and a new state: (state, data) (RNGBITGENERATOR-1)."""
        state = self._operand(initial_state)
        result = Shape.tuple_of([state.shape.without_layout(), shape_of(shape)])
        return self._add(OPERATIONS["rng-bit-generator"](algorithm=algorithm), (state,), result)


def _resized(shape: Shape, dimension: int, size: int) -> Shape:
    sizes = list(shape.dimensions)
    sizes[dimension] = size
    return Shape.array(shape.element_type, sizes)


def _check_split(opcode: str, clause: str, shape: Shape, dimension: int, what: str) -> None:
    integer(opcode, what, dimension)
    if not 0 <= dimension < shape.rank:
        raise RuleError(opcode, clause, f"{what} {dimension} must be in [0, {shape.rank}) of {shape}")
