"""Executables of partitioned programs that take and return whole arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hloom.errors import ArgumentError
from hloom.ir import Module
from hloom.runtime.arguments import check_argument
from hloom.runtime.blocks import join, shard
from hloom.runtime.executable import DeviceExecutable, Executable
from hloom.shape import Shape
from hloom.sharding import Sharding
from hloom.values import Array, Value


class PartitionedExecutable(Executable):
    """A program of several partitions: it shards its arguments and joins its results.

    `blocks` runs the program of one partition on each device, and can also be called with blocks. `parameters` and
    `results` have the sharding of each array leaf of the parameters and of the result. `run_replicas` takes a list of
    whole arrays for each replica, the same on all processes that share the devices. Created by `hloom.compile`.
    """

    def __init__(
        self, blocks: DeviceExecutable, whole: Module, parameters: Sequence[Sharding], results: Sequence[Sharding]
    ) -> None:
        self.blocks = blocks
        self.module = blocks.module
        self.name, self._shapes, self._result = whole.name, whole.entry.parameter_shapes, whole.entry.result_shape
        self.parameters = parameters
        self.results = results

    @property
    def input_shapes(self) -> list[Shape]:
        return self._shapes

    @property
    def output_shape(self) -> Shape:
        return self._result

    @property
    def list_count(self) -> int:
        return self.blocks.replica_count

    @property
    def partition_count(self) -> int:
        """The number of partitions of each replica."""
        return self.module.num_partitions

    @property
    def rank(self) -> int:
        return self.blocks.rank

    @property
    def temporary_bytes(self) -> int:
        return self.blocks.temporary_bytes

    def report(self) -> list[str]:
        return self.blocks.report()

    def run_replicas(self, arguments: Sequence[Sequence[Any]], timeout: float | None = None) -> list[Value]:
        if len(arguments) != self.list_count:
            raise ArgumentError(f"{self.list_count} replicas need as many lists of arguments, got {len(arguments)}")
        given = [values for each in arguments for values in self._shard_arguments(each)]
        results = self.blocks.run_replicas(self.blocks.local_lists(given), timeout)
        results = self.blocks.gather(results)
        count = self.partition_count
        return [self._join_results(results[k : k + count]) for k in range(0, len(results), count)]

    def _shard_arguments(self, arrays: Sequence[Any]) -> list[list[Value]]:
        """The arguments of each partition."""
        shapes = self.input_shapes
        if len(arrays) != len(shapes):
            raise ArgumentError(f"{self.name} takes {len(shapes)} arguments, got {len(arrays)}")
        values = [check_argument(a, s, f"argument {k}") for k, (a, s) in enumerate(zip(arrays, shapes, strict=True))]
        shardings = iter(self.parameters)
        parts = [self._shard(value, shape, shardings) for value, shape in zip(values, shapes, strict=True)]
        return [[part[partition] for part in parts] for partition in range(self.partition_count)]

    def _shard(self, value: Value, shape: Shape, shardings: Any) -> list[Value]:
        if shape.is_tuple:
            pairs = zip(value, shape.elements, strict=True)
            parts = [self._shard(element, of, shardings) for element, of in pairs]
            return [tuple(part[k] for part in parts) for k in range(self.partition_count)]
        sharding = next(shardings)
        return [*shard(value, sharding, self.partition_count)] if shape.is_array else [value] * self.partition_count

    def _join_results(self, results: list[Value]) -> Value:
        return self._join(results, self.output_shape, iter(self.results))

    def _join(self, parts: list[Value], shape: Shape, shardings: Any) -> Value:
        if shape.is_tuple:
            elements = enumerate(shape.elements)
            return tuple(self._join([part[k] for part in parts], element, shardings) for k, element in elements)
        sharding = next(shardings)
        arrays: list[Array] = parts
        return join(arrays, sharding, shape.dimensions) if shape.is_array else parts[0]
