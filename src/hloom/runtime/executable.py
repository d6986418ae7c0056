"""Executables: modules that are ready to run. They check arguments, run the replicas and return their results."""

from __future__ import annotations

import contextvars
import functools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from hloom.errors import ArgumentError, HloomError, ResourceExhaustedError, RunError, counted
from hloom.ir import Instruction, Module
from hloom.ops.structure import ElidedConstant
from hloom.runtime.arguments import check_argument
from hloom.runtime.device import MAX_DEVICES, Device
from hloom.runtime.rendezvous import Rendezvous
from hloom.shape import Shape
from hloom.system.float_state import ieee_floats
from hloom.system.records import record
from hloom.system.shield import Job
from hloom.text import fingerprint
from hloom.values import Value
from hloom.verifier.runnable import check_runnable

if TYPE_CHECKING:
    from hloom.runtime.mpi.reductions import MakeReduction
    from hloom.runtime.mpi.world import World


MAX_DIMENSIONS = 64
"""Dimensions that an array of NumPy may have."""


class Executable(ABC):
    """A module that is ready to run, created by `hloom.compile`.

    Calling it with one array for each parameter (anything with `__array__` or `__dlpack__`, Python numbers and lists;
    tuples for tuple parameters) returns an array, or a tuple for a tuple root.

    >>> run = hl.compile("HloModule m  ENTRY e { x = f32[2] parameter(0)  ROOT y = f32[2] negate(x) }")
    >>> run(np.float32([1, 2]))
    array([-1., -2.], dtype=float32)
    >>> run.input_shapes, run.output_shape
    ([Shape(f32[2])], Shape(f32[2]))
    """

    module: Module
    """The program of one device."""

    @property
    @abstractmethod
    def input_shapes(self) -> list[Shape]:
        """The shapes of the parameters, in order."""

    @property
    @abstractmethod
    def output_shape(self) -> Shape:
        """The shape of the result; dynamic dimensions are returned at their actual size (SETDIMENSIONSIZE-6)."""

    @property
    @abstractmethod
    def list_count(self) -> int:
        """The number of argument lists that `run_replicas` takes."""

    @property
    def rank(self) -> int:
        """The rank of this process among those that share the devices."""
        return 0

    def local_lists(self, lists: Sequence[Any]) -> list[Any]:
        """Selects the argument lists that `run_replicas` takes on this process, from those of all processes."""
        return [*lists]

    def gather(self, results: list[Value]) -> list[Value]:
        """Returns the results of all processes, from those of this one; called on all of them."""
        return results

    @property
    def total_count(self) -> int:
        """The number of argument lists of all processes together."""
        return self.list_count

    @abstractmethod
    def run_replicas(self, arguments: Sequence[Sequence[Any]], timeout: float | None = None) -> list[Value]:
        """Runs all replicas concurrently, on `list_count` argument lists; returns a list of their results.

        `timeout` is a deadline in seconds for the whole run. Ctrl-C also ends it: loops poll for both.
        """

    def __call__(self, *arrays: Any) -> Value:
        """Runs the module on one list of arguments; ArgumentError if arrays do not fit the parameters."""
        return self.run(*arrays)

    def run(self, *arrays: Any, timeout: float | None = None) -> Value:
        """Runs the module on one list of arguments; RunError, which names the loop, after `timeout` seconds."""
        if self.list_count != 1:
            raise ArgumentError(f"the module runs on {self.list_count} devices: use run_replicas([arguments of each])")
        return self.run_replicas([arrays], timeout=timeout)[0]

    @property
    def temporary_bytes(self) -> int:
        """The memory in bytes that a run takes for temporaries; 0 if the backend does not know it in advance."""
        return 0

    def report(self) -> list[str]:
        """The instructions that the backend leaves to the interpreter, one line each."""
        return []

    def __reduce__(self) -> NoReturn:
        raise ArgumentError("an executable belongs to its process: pickle or copy its module, and compile that")

    def __repr__(self) -> str:
        parameters = ", ".join(map(str, self.input_shapes))
        return f"{type(self).__name__}({self.module.name}: ({parameters}) -> {self.output_shape})"

    def _repr_html_(self) -> str:
        """A table for notebooks: parameters, result, temporary memory, and interpreted instructions."""
        rows = [(f"parameter {k}", str(shape)) for k, shape in enumerate(self.input_shapes)]
        rows += [("result", str(self.output_shape)), ("temporary memory", f"{self.temporary_bytes:,} bytes")]
        rows += [("interpreted", line) for line in self.report()]
        cells = "".join(f"<tr><th>{name}</th><td><code>{escape(text)}</code></td></tr>" for name, text in rows)
        return f"<table><caption>{escape(self.module.name)}</caption>{cells}</table>"


@record
class RunOptions:
    """The devices and limits of a run, as documented for `hloom.compile`."""

    replicas: int = 1
    devices: Sequence[Device] | None = None
    timeout: float = 30.0
    seed: int | None = None
    distributed: bool | Sequence[int] = False
    """Whether MPI ranks share the devices, or the rank of each device."""


class DeviceExecutable(Executable):
    """A module that runs on N replicas of P partitions, one device each (device = replica * P + partition).

    Devices are threads of this process or of other ranks; each local one takes a list of arguments.
    """

    def __init__(self, module: Module, options: RunOptions) -> None:
        replica_count, devices = options.replicas, options.devices
        if replica_count < 1:
            raise ArgumentError(f"a module runs on at least one replica, got {replica_count}")
        check_runnable(module, replica_count, module.num_partitions)
        _check_elided(module)
        check_dimensions([*module.entry.parameters, module.entry.root])
        self.module = module
        self.replica_count = replica_count
        self.device_count = replica_count * module.num_partitions
        if self.device_count > MAX_DEVICES:
            raise ArgumentError(f"a module runs on at most {MAX_DEVICES} devices, got {self.device_count}")
        self.devices = [Device(i) for i in range(self.device_count)] if devices is None else list(devices)
        self.timeout = options.timeout
        self.seed = options.seed
        if len(self.devices) != self.device_count:
            raise ArgumentError(f"the module runs on {self.device_count} devices, got {len(self.devices)}")
        self._parameters = module.entry.parameters
        self.world: World | None = None
        self.ranks: Sequence[int] = [0] * self.device_count
        self._is_agreed = False
        if options.distributed:
            from hloom.runtime.mpi.world import world

            self.world = world()
            given = options.distributed
            self.ranks = self.world.ranks(self.device_count) if given is True else given
        self.local_devices = [device for device, rank in enumerate(self.ranks) if rank == self.rank]

    @property
    def input_shapes(self) -> list[Shape]:
        return [parameter.shape for parameter in self._parameters]

    @property
    def output_shape(self) -> Shape:
        return self.module.entry.result_shape

    @property
    def list_count(self) -> int:
        return len(self.local_devices)

    @property
    def rank(self) -> int:
        return 0 if self.world is None else self.world.rank

    @property
    def total_count(self) -> int:
        return self.device_count

    def local_lists(self, lists: Sequence[Any]) -> list[Any]:
        return [lists[device] for device in self.local_devices]

    def run_replicas(self, arguments: Sequence[Sequence[Any]], timeout: float | None = None) -> list[Value]:
        if len(arguments) != self.list_count:
            raise ArgumentError(f"{self.list_count} devices need as many lists of arguments, got {len(arguments)}")
        rendezvous = self._rendezvous(timeout)
        try:
            checked = self._copy_shared_arguments([self._check_arguments(list(each)) for each in arguments])
            if self.list_count == 1:
                return [self._run_checked(self.local_devices[0], checked[0], rendezvous)]
            return self._run_threads(checked, rendezvous)
        except BaseException as error:
            rendezvous.fail(error)
            raise

    def gather(self, results: list[Value]) -> list[Value]:
        return results if self.world is None else self.world.gather(results, self._all_ranks, self.timeout)

    def _rendezvous(self, limit: float | None) -> Rendezvous:
        counts = (self.replica_count, self.module.num_partitions, self.timeout, limit)
        if self.world is None:
            return Rendezvous(*counts)
        from hloom.runtime.mpi.rendezvous import MpiRendezvous, groups_of

        self.world.check()
        if not self._is_agreed:
            self.world.check_agreement(self._facts_to_agree_on(), self._all_ranks, self.timeout)
            self.world.create_communicators(groups_of(self.module, self.replica_count), self.ranks, self.timeout)
            self._is_agreed = True
            self._on_first_run()
        return MpiRendezvous(self.world, self.ranks, self._make_reduction, *counts)

    @property
    def _make_reduction(self) -> MakeReduction:
        """Compiles reductions that MPI has no operation for."""
        from hloom.runtime.mpi.reductions import no_reduction

        return no_reduction

    def _on_first_run(self) -> None:
        """Called once, after all ranks have agreed and communicators exist."""

    @property
    def has_one_device_per_rank(self) -> bool:
        """Whether devices are distributed over ranks, one on each."""
        return self.world is not None and len({*self.ranks}) == self.device_count

    @property
    def _all_ranks(self) -> list[int]:
        return sorted({*self.ranks})

    def _facts_to_agree_on(self) -> dict[str, str]:
        """Facts about the program that must be the same on all processes."""
        from importlib.metadata import version

        from hloom.runtime.mpi.world import mpi_version

        versions = version("hloom"), np.__version__, mpi_version()
        return {
            "module": fingerprint(self.module),
            "backend": type(self).__name__,
            "number of devices": f"{self.replica_count} {self.module.num_partitions}",
            "version of hloom, NumPy or MPI": str(versions),
        }

    @abstractmethod
    def _run(self, device: int, arguments: list[Value], rendezvous: Rendezvous) -> Value:
        """Runs the entry computation on one device, on values that fit its parameters; the caller owns the result."""

    def _run_checked(self, device: int, arguments: list[Value], rendezvous: Rendezvous) -> Value:
        try:
            # NumPy's error settings belong to the context: an interrupt cannot leave those of a copy in effect.
            return contextvars.copy_context().run(self._run_quietly, device, arguments, rendezvous)
        except RecursionError:
            raise RunError("computations call each other too deeply to run") from None
        except MemoryError as error:
            raise ResourceExhaustedError(f"no memory: {error}") from None

    def _run_quietly(self, device: int, arguments: list[Value], rendezvous: Rendezvous) -> Value:
        np.seterr(all="ignore")
        with ieee_floats():
            return self._run(device, arguments, rendezvous)

    def _run_threads(self, arguments: list[list[Value]], rendezvous: Rendezvous) -> list[Value]:
        results: list[Value] = [None] * self.list_count
        failures: list[tuple[int, BaseException]] = []

        def work(index: int) -> None:
            device = self.local_devices[index]
            try:
                results[index] = self._run_checked(device, arguments[index], rendezvous)
                rendezvous.end(device, "has ended its program")
            except BaseException as error:
                failures.append((device, error))
                rendezvous.end(device, f"failed: {str(error).splitlines()[0] if str(error) else error!r}")

        jobs = [Job(functools.partial(work, index)) for index in range(self.list_count)]
        try:
            for job in jobs:
                job.start()
            for job in jobs:
                job.wait()
        except BaseException:
            rendezvous.stop()
            raise
        if failures:
            # The first failure is the cause; the others are mostly devices that waited for it.
            device, error = failures[0]
            raise error.at(f"device {device}") if isinstance(error, HloomError) else error
        return results

    def _copy_shared_arguments(self, lists: list[list[Value]]) -> list[list[Value]]:
        """The arguments of all devices, with copies of arrays that one device may write and another reads."""
        return lists

    def _check_arguments(self, arrays: list[Any]) -> list[Value]:
        if len(arrays) != len(self._parameters):
            wanted = ", ".join(f"%{p.name}: {p.shape}" for p in self._parameters) or "none"
            raise ArgumentError(
                f"{self.module.name} takes {counted(len(self._parameters), 'argument')} ({wanted}), got {len(arrays)}"
            )
        return [
            check_argument(array, parameter.shape, f"argument {i} (%{parameter.name})")
            for i, (array, parameter) in enumerate(zip(arrays, self._parameters, strict=True))
        ]


def own_arrays(value: Value, arguments: list[Value]) -> Value:
    """Copies results that the caller may not write to: views of larger arrays, and the arguments themselves."""
    if isinstance(value, tuple):
        return tuple(own_arrays(element, arguments) for element in value)
    if not isinstance(value, np.ndarray):
        return value
    flags = value.flags
    own = flags.owndata and flags.writeable and flags.c_contiguous and not any(value is a for a in arguments)
    return value if own else np.array(value, order="C")


def _check_elided(module: Module) -> None:
    """Raises ArgumentError if the text of the module left out values of constants."""
    names = [
        f"%{instruction.name}" for instruction in module.instructions() if isinstance(instruction.op, ElidedConstant)
    ]
    if names:
        shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        raise ArgumentError(
            f"the text leaves out the values of {shown}: print it with large constants, or give fill_elided=SEED "
            "(--fill-elided SEED) for random ones"
        )


def check_dimensions(instructions: Iterable[Instruction]) -> None:
    """Raises ArgumentError if NumPy has no arrays of as many dimensions as the values of some instructions."""
    for instruction in instructions:
        rank = max((leaf.rank for leaf in instruction.shape.leaves() if leaf.is_array), default=0)
        if rank > MAX_DIMENSIONS:
            raise ArgumentError(
                f"arrays of NumPy have at most {MAX_DIMENSIONS} dimensions, the value of %{instruction.name} has {rank}"
            )


def located(error: Exception, shape: Shape, location: str) -> Exception:
    """Adds a location to the error of an operation with a result of `shape`.

    NumPy's errors about array sizes become ResourceExhaustedError.
    """
    if isinstance(error, HloomError):
        return error.at(location)
    if isinstance(error, ValueError) and not any(words in str(error) for words in _TOO_LARGE):
        return error
    return ResourceExhaustedError(f"no memory: the result has {shape.byte_size:,} bytes ({error})").at(location)


_TOO_LARGE = ("array is too big", "Maximum allowed dimension exceeded")
"""NumPy's messages for arrays whose size in bytes exceeds int64."""
