"""The entry points of hloom: parse, load, save and compile."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, cast

from hloom.errors import ArgumentError, HloomError
from hloom.ir import Computation, Module
from hloom.system.float_state import ieee_floats
from hloom.system.garbage import freeze_imported, older_objects_frozen
from hloom.system.shield import shielded

if TYPE_CHECKING:
    from hloom.builder import XlaComputation
    from hloom.runtime.device import Device
    from hloom.runtime.executable import DeviceExecutable, Executable
    from hloom.sharding import Sharding

    Program = Module | XlaComputation | Computation | str | PathLike[str]
    """A module, a built computation, HLO text or StableHLO text, or the path of a file."""


@ieee_floats()
def parse(text: str) -> Module:
    """Parses HLO text or StableHLO text, told apart by how they start, and verifies the module.

    Raises ParseError or RuleError with the line and column of an error. `Module.to_text` and `hloom.save` are the
    inverse.

    >>> module = hl.parse("HloModule m  ENTRY e { x = f32[2] parameter(0)  ROOT y = f32[2] negate(x) }")
    >>> module.entry.root
    %y = f32[2] negate(%x)
    """
    from hloom.files.formats import module_from_text

    return module_from_text(text)


@shielded
@ieee_floats()
def load(path: str | PathLike[str]) -> Module:
    """Reads and verifies the module in a file; the content, not the name, determines the format.

    Formats are HLO text; StableHLO text; StableHLO bytecode and portable artifacts (by jaxlib); a serialised
    HloModuleProto, HloProto or HloSnapshot (`hloom.Snapshot.load` gives the arguments too), or the text format of
    these; compressed files, archives, XLA's dump folders and profiles, and functions that JAX exported
    (`hloom.files.containers`). Raises HloomError, with the path, if the file cannot be read or does not hold a valid
    module.

    >>> hl.save(hl.parse("HloModule m  ENTRY e { ROOT x = f32[2] parameter(0) }"), "same.hlo")
    >>> hl.load("same.hlo").entry
    Computation(e: (f32[2]) -> f32[2])
    """
    from hloom.files.containers import read_module
    from hloom.files.formats import module_from_content

    content = read_module(path)
    try:
        return module_from_content(content)
    except HloomError as error:
        raise error.at(str(path)) from None


@ieee_floats()
def save(module: Module | XlaComputation, path: str | PathLike[str]) -> None:
    """Writes a module to a file, in the format of the extension of `path`.

    `.hlo` is HLO text, `.mlir` StableHLO, `.mlirbc` its bytecode (by jaxlib), `.pb` a serialised HloModuleProto,
    `.pbtxt` its text format. The file is replaced atomically. Raises ArgumentError for another extension, for a file
    that cannot be written, and for modules that StableHLO cannot express.

    >>> hl.save(hl.parse("HloModule m  ENTRY e { ROOT x = f32[2] parameter(0) }"), "same.mlir")
    >>> print(open("same.mlir").read())
    module @m attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
      func.func public @main(%arg0: tensor<2xf32>) -> tensor<2xf32> {
        return %arg0 : tensor<2xf32>
      }
    }
    <BLANKLINE>
    """
    from hloom.files.formats import content_of, path_format, write_file

    if not isinstance(module, Module):
        module = getattr(module, "module", module)
        if not isinstance(module, Module):
            raise ArgumentError(f"save takes a Module or an XlaComputation, got {type(module).__name__}")
    write_file(path, content_of(module, path_format(path)))


@shielded
def compile(
    module: Program | Callable[..., Any],
    backend: str = "cpu",
    *,
    replicas: int | None = None,
    partitions: int | None = None,
    distributed: bool | Sequence[int] = False,
    devices: Sequence[Device] | None = None,
    timeout: float = 30.0,
    seed: int | None = None,
    donate: bool = False,
    batch_invariant: bool = False,
    step_limit: float = math.inf,
    observer: Callable[..., None] | None = None,
    fill_elided: int | None = None,
) -> Executable:
    """Compiles a program to an executable.

    Arguments:
        module: a module, a built computation, HLO text or StableHLO text, or the path of a file that `load` reads; it
            is verified first. Or a function that JAX can trace: `from_jax` makes a module of it at each call whose
            arguments have new shapes or types, and its results are those of the module.
        backend: "cpu" compiles to native code; "interpreter" evaluates one instruction after another, the reference.
        replicas: the number of replicas that run the program; by default the module's `replica_count`.
        partitions: the number of partitions to which SPMD partitioning distributes the module, by its shardings; the
            executable then takes and returns whole arrays. By default the module is the program of one partition
            already, and its `num_partitions` of them run.
        distributed: whether the devices are distributed over all processes of this MPI run (`mpiexec -n N`), each of
            which compiles the same module: arguments and results are those of the process's own devices, or whole
            arrays with `partitions`. A sequence gives the rank of each device.
        devices: a device, with its infeed and outfeed queues, for each replica (and partition); created by default.
        timeout: seconds that a replica waits for the others in a collective before RunError is raised.
        seed: the seed of RngUniform and RngNormal, >= 0; by default every run draws other values (RNGNORMAL-3).
        donate: whether parameters that the module's input_output_alias or buffer_donor names are donated: results may
            overwrite the arrays passed for them.
        batch_invariant: whether each row of a result is the same bits for every size of the batch that it is in
            (`docs/determinism.md`), which costs speed; also set by HLOOM_BATCH_INVARIANT=1.
        step_limit: the number of instructions after which the interpreter raises RunError.
        observer: a function that the interpreter calls after each instruction, with the instruction, the values of its
            operands and its value.
        fill_elided: the seed of random values for constants that the text elides, `constant({...})`; by default such a
            module cannot be run.

    A module with unbounded parameter sizes, `f32[?,3]`, is compiled when it is called, once for each combination of
    argument sizes. An instruction whose operands, combiner and result mix floating-point types computes in the widest.

    Raises HloomError if the module violates a rule, or calls a custom-call target that is not registered, or one of
    hloom's own with operands that its signature does not allow (CUSTOMCALL-7).

    >>> run = hl.compile("HloModule m  ENTRY e { x = f32[2] parameter(0)  ROOT y = f32[2] negate(x) }")
    >>> run(np.float32([1, 2]))
    array([-1., -2.], dtype=float32)
    """
    from hloom.runtime.executable import RunOptions

    _check_options(backend, replicas, partitions, timeout, seed, step_limit, observer)

    @shielded
    @ieee_floats()
    @older_objects_frozen()
    def compiled(program: Program) -> Executable:
        module = prepare(program, fill_elided)
        count = module.replica_count if replicas is None else replicas
        if any(instruction.shape.is_unbounded for instruction in module.instructions()):
            if distributed:
                raise ArgumentError(
                    "`distributed` requires static or bounded sizes, but the module has unbounded ones, '?'"
                )
            return _specialized(module, count if partitions is not None else count * module.num_partitions, compiled)
        if partitions is not None:
            module, whole, shardings = _partitioned(module, count, partitions)
        options = RunOptions(count, devices, timeout, seed, distributed)
        executable: DeviceExecutable
        if backend == "cpu":
            from hloom.backends.cpu.compiler import compile_module
            from hloom.backends.cpu.executable import CpuExecutable
            from hloom.backends.cpu.pipeline import Topology

            freeze_imported()
            topology = Topology.of(count * module.num_partitions, distributed)
            executable = CpuExecutable(module, options, compile_module(module, donate, topology, batch_invariant))
        else:
            from hloom.backends.interpreter.executable import InterpreterExecutable

            executable = InterpreterExecutable(module, options, step_limit, observer)
        if partitions is None:
            return executable
        from hloom.runtime.partitioned import PartitionedExecutable

        return PartitionedExecutable(executable, whole, *shardings)

    if callable(module) and not hasattr(module, "module"):
        return _traced(module, compiled)
    return compiled(cast("Program", module))


def _traced(function: Callable[..., Any], compile_module: Callable[[Module], Executable]) -> Executable:
    """An executable that traces a function with JAX for each set of shapes and types of its arguments."""
    from hloom.runtime.traced import TracedExecutable
    from hloom.stablehlo.importer.from_jax import call_of

    return TracedExecutable(getattr(function, "__name__", "function"), call_of(function, compile_module))


def _specialized(module: Module, count: int, compile_module: Callable[[Module], Executable]) -> Executable:
    """An executable of a module with unbounded sizes, on a number of devices."""
    from hloom.passes.unbounded import specialized
    from hloom.runtime.specialized import SpecializedExecutable

    return SpecializedExecutable(module, count, lambda shapes: compile_module(specialized(module, shapes)))


def _partitioned(
    module: Module, replicas: int, partitions: int
) -> tuple[Module, Module, tuple[list[Sharding], list[Sharding]]]:
    """Partitions a module; returns the program of one partition, the whole one, and the shardings of parameters and
    results.
    """
    from hloom.passes import clone_module
    from hloom.passes.spmd.partitioner import partition

    if module.replica_count != replicas:
        module = clone_module(module)
        module.replica_count = replicas
    made = partition(module, partitions)
    return made.module, module, (made.parameters, made.results)


@shielded
def prepare(source: Program, fill_elided: int | None = None) -> Module:
    """Verifies a module and prepares it for a backend: constants filled, mixed precision and NaN signs made explicit.

    The argument is not modified. Arguments and errors are those of `compile`.
    """
    from hloom.passes.legalize.mixed_precision import MixedPrecisionExpander
    from hloom.passes.legalize.nan_signs import NanSigns, computed_nans
    from hloom.runtime.custom_calls.targets import check_targets
    from hloom.verifier import verify_module

    module, seed = _as_module(source), fill_elided
    mixed = verify_module(module)
    check_targets(module)
    if seed is not None:
        from hloom.files import elided

        module = elided.fill_elided(module, seed)
    if mixed or computed_nans(module):
        from hloom.passes import clone_module

        module = clone_module(module) if seed is None else module
        if mixed:
            MixedPrecisionExpander().run(module)
        NanSigns().run(module)
    return module


def _check_options(
    backend: str,
    replicas: int | None,
    partitions: int | None,
    timeout: float,
    seed: int | None,
    step_limit: float,
    observer: Callable[..., None] | None,
) -> None:
    if backend not in ("cpu", "interpreter"):
        raise ArgumentError(f"there is no backend {backend!r}: the backends are 'cpu' and 'interpreter'")
    if backend == "cpu" and (observer is not None or step_limit != math.inf):
        raise ArgumentError("step_limit and observer watch single instructions: they need backend='interpreter'")
    for name, count in (("replicas", replicas), ("partitions", partitions)):
        if count is not None and not isinstance(count, int):
            raise ArgumentError(f"{name} is an integer, got {count!r}")
    if seed is not None and (not isinstance(seed, int) or seed < 0):
        raise ArgumentError(f"seed is an integer >= 0, got {seed!r}")
    if not isinstance(timeout, (int, float)) or not isinstance(step_limit, (int, float)):
        raise ArgumentError(f"timeout and step_limit are numbers, got {timeout!r} and {step_limit!r}")


def _as_module(source: Any) -> Module:
    if isinstance(source, PathLike) or (isinstance(source, str) and _is_path(source)):
        return load(source)
    if isinstance(source, str):
        return parse(source)
    if isinstance(source, Computation):
        return _module_of(source)
    return source if isinstance(source, Module) else _built_module(source)


def _is_path(text: str) -> bool:
    """Whether a text is the path of a file rather than a program."""
    from hloom.files.formats import EXTENSIONS

    return "\n" not in text and (os.path.splitext(text)[1] in EXTENSIONS or os.path.exists(text))


def _module_of(computation: Computation) -> Module:
    if computation.parent is not None and computation.parent.entry_computation is computation:
        return computation.parent
    raise ArgumentError(f"{computation.name} is not the entry of a module: compile the module, or build it with one")


def _built_module(value: Any) -> Module:
    from hloom.builder import XlaOp

    if isinstance(value, XlaOp):
        built = f"build the computation first, b.build(op) with the builder {value.builder.name!r}"
        raise ArgumentError(f"an XlaOp is a value of a computation that is not built yet: {built}")
    module = getattr(value, "module", None)
    if not isinstance(module, Module):
        raise ArgumentError(
            "a program is a Module, an XlaComputation, HLO text, StableHLO text or the path of a file, got "
            f"{type(value).__name__}"
        )
    return module
