"""XLA's CPU backend as an oracle, with the differences that are known: each a class with its reason."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from hloom.bench.peer_process import XlaCrash, XlaError, XlaPeer
from hloom.errors import ArgumentError
from hloom.faults.case import Case
from hloom.fuzz.grammar.draw import Draw
from hloom.fuzz.noise import STEP_ULPS, Error, has_rounding, noise_of
from hloom.fuzz.oracles import Problem, judged
from hloom.fuzz.reference import Reference
from hloom.ir import Instruction, Module
from hloom.numerics import has_nan
from hloom.ops.batch_norm import BatchNormGrad
from hloom.ops.broadcast import Iota
from hloom.ops.collectives import ReduceScatter
from hloom.ops.communication import Infeed, Outfeed, Transfer
from hloom.ops.convolution import Convolution
from hloom.ops.custom_call import MARKERS, TOP_K_TARGETS, CustomCall
from hloom.ops.dot import DotDimensions
from hloom.ops.elementwise_binary import Maximum, Minimum
from hloom.ops.operation import Operation
from hloom.ops.ragged_all_to_all import RaggedAllToAll
from hloom.ops.reduce import Reduce
from hloom.ops.reduce_window import SelectAndScatter
from hloom.ops.reshape import Bitcast
from hloom.ops.scatter import Scatter
from hloom.ops.structure import Constant
from hloom.ops.traits import CallLike, Identity, Movement, Structural
from hloom.passes import Pipeline, clone_module
from hloom.passes.control_flow.call_inliner import CallInliner
from hloom.passes.legalize.asynchronous import AsyncToSync
from hloom.passes.legalize.declared import DeclaredExpander
from hloom.passes.legalize.nan_signs import tells_nans_apart
from hloom.proto import module_to_bytes
from hloom.shape import Shape
from hloom.system.child import ChildTimedOut
from hloom.system.records import record
from hloom.types import PrimitiveType

SECONDS = 300.0
MULTIVALUED = ("sqrt", "rsqrt", "log", "log-plus-one", "power", "acos", "asin", "acosh", "asinh", "atanh", "atan2")
"""Operations with a principal value: of complex numbers that differ in the sign of a zero, the results differ."""
PRODUCTS_OF_PARTS = ("cosine", "sine", "sinh", "cosh", "exponential", "exponential-minus-one")
"""Operations whose parts, for complex numbers, are products of functions of the operand's parts."""
ROUNDINGS = ("round-nearest-afz", "round-nearest-even")
PEER_ULPS = 4.0
"""The error of XLA's approximations, which no clause bounds, beyond that of hloom's."""


def noise_of_peer(op: Operation, shapes: Sequence[Shape]) -> Error | None:
    """Returns the error of an operation on XLA's CPU backend.

    It contracts products and sums to fused multiply-adds, keeps narrow floats wide between operations, and flushes
    subnormal numbers to zero (GEN-7 keeps them).
    """
    if not has_rounding(shapes) or isinstance(op, (Structural, Movement, Identity, CallLike)):
        return None
    known = noise_of(op, shapes)
    if known is None:
        return Error(STEP_ULPS, flushes=True)
    return replace(known, result=known.result + PEER_ULPS, operands=2 * known.operands, flushes=True)


@dataclass
class Xla:
    """XLA in a process of its own."""

    def __post_init__(self) -> None:
        self.peer = XlaPeer(SECONDS)

    def __call__(self, case: Case, reference: Reference, draw: Draw) -> Problem | None:
        """Compares XLA's results with a reference that allows what XLA does."""
        if case.module.replica_count > 1 or any(map(_is_foreign, case.module.instructions())):
            raise ArgumentError("the peer has one device without a host, results of static shapes and its own targets")
        try:
            found = self.peer.run_proto(module_to_bytes(_accepted(case.module)), [*(case.arguments or ())])
        except XlaError as error:
            raise ArgumentError(str(error)) from None
        except XlaCrash as error:
            return Problem("crash", str(error))
        except ChildTimedOut as error:
            raise ArgumentError(error.message) from None
        return judged(Reference(case, noise_of_peer), tuple(found))

    def close(self) -> None:
        """Ends the process."""
        self.peer.close()


def _is_foreign(instruction: Instruction) -> bool:
    """Whether an instruction is not one for a single device, or a custom call that is not one of XLA's.

    XLA ends the process where it runs a ragged exchange. Arguments of LAPACK routines are logical arrays in hloom, and
    column-major memory in XLA. XLA chooses layouts itself, and so what a bitcast means.
    """
    op = instruction.op
    if isinstance(op, CustomCall):
        return op.target_name not in (*MARKERS, *TOP_K_TARGETS)
    if isinstance(op, Bitcast):
        return not all(s.layout and s.layout.is_dim0_major for s in (instruction.shape, *instruction.operand_shapes))
    return instruction.shape.is_dynamic or isinstance(op, (Transfer, Infeed, Outfeed, RaggedAllToAll))


def _accepted(module: Module) -> Module:
    """Returns a copy without what XLA's CPU backend refuses: fusions of unused values, async calls, ragged dots .."""
    copy = clone_module(module)
    Pipeline("accepted", (AsyncToSync(), CallInliner(fusions=True), DeclaredExpander())).run(copy)
    return copy


@record
class Known:
    """A class of differences between XLA and the specification: a name, the reason with its clause, a predicate."""

    name: str
    reason: str
    applies: Callable[[Case, Problem], bool]


def class_of(case: Case, problem: Problem) -> Known | None:
    """Returns the class of a difference of XLA's, by its reduced case; None for a new one."""
    return next((known for known in KNOWN if known.applies(case, problem)), None)


def abort_of(problem: Problem) -> str:
    """Names the class of an abort by the check that failed, without its numbers, or by the signal; "" for no abort."""
    if problem.kind != "crash":
        return ""
    ending, _, line = problem.message.partition(": ")
    failed = line.partition("Check failed: ")[2]
    return "aborts: " + (re.sub(r"\d+", "N", failed)[:100] or ending.rpartition(" ")[2])


def _has(case: Case, opcode: str, fits: Callable[[PrimitiveType], bool] = lambda _: True) -> bool:
    """Whether a case has an instruction of an opcode with an array whose element type fits."""
    return any(
        instruction.opcode == opcode and any(map(fits, _types([instruction.shape, *instruction.operand_shapes])))
        for instruction in case.module.instructions()
    )


def _types(shapes: Sequence[Shape]) -> Iterator[PrimitiveType]:
    for shape in shapes:
        yield from (leaf.element_type for leaf in shape.leaves() if leaf.is_array)


def _has_type(case: Case, element_type: PrimitiveType) -> bool:
    return any(element_type in _types([instruction.shape]) for instruction in case.module.instructions())


def _is_constant(case: Case, opcode: str) -> bool:
    """Whether an operation of a case has constant operands only, as XLA evaluates while it compiles."""
    constant = (Constant, Iota)
    return any(
        instruction.opcode == opcode and all(isinstance(o.op, constant) for o in instruction.operands)
        for instruction in case.module.instructions()
    )


def _has_empty_vectors(instruction: Instruction) -> bool:
    return isinstance(instruction.op, Scatter) and not instruction.op.scatter_dims_to_operand_dims


def _is_scattered_maximum(instruction: Instruction) -> bool:
    combiners = instruction.op.computations if isinstance(instruction.op, ReduceScatter) else ()
    return any(isinstance(c.root.op, (Maximum, Minimum)) and has_rounding([c.root.shape]) for c in combiners)


def _is_gradient_without_elements(instruction: Instruction) -> bool:
    return isinstance(instruction.op, BatchNormGrad) and not instruction.operands[0].shape.element_count


def _reduces_single_elements(instruction: Instruction) -> bool:
    if not isinstance(instruction.op, Reduce):
        return False
    return instruction.operands[0].shape.element_count == next(instruction.shape.leaves()).element_count


def _selects_nothing(instruction: Instruction) -> bool:
    if not isinstance(instruction.op, SelectAndScatter):
        return False
    operand, source, _ = instruction.operands
    return isinstance(operand.op, (Constant, Iota)) and not source.shape.element_count


def _is_integer_of_complex(instruction: Instruction) -> bool:
    """Whether a product of complex numbers has integers as its result."""
    types = list(_types(instruction.operand_shapes)) if isinstance(instruction.op, (DotDimensions, Convolution)) else []
    return any(t.is_complex for t in types) and instruction.shape.element_type.is_integer


def _is_narrow(element_type: PrimitiveType) -> bool:
    return element_type.bits < 8


KNOWN: tuple[Known, ...] = (
    Known("aborts", "XLA ends the process on a valid module.", lambda case, problem: problem.kind == "crash"),
    Known(
        "signed random bits",
        "RNGBITGENERATOR-1: data of signed integers come back as unsigned ones.",
        lambda case, problem: _has(case, "rng-bit-generator", lambda t: t.is_signed),
    ),
    Known(
        "popcnt of narrow integers",
        "POPULATIONCOUNT-1: the bits of the sign-extended byte are counted.",
        lambda case, problem: _has(case, "popcnt", lambda t: t.is_integer and t.bits < 8),
    ),
    Known(
        "powers of integers",
        "POW-2: only the lowest 6 bits of an exponent are read.",
        lambda case, problem: _has(case, "power", lambda t: t.is_integer),
    ),
    Known(
        "folded convolutions of integers",
        "GEN-6: the evaluator clamps to the range where it should wrap.",
        lambda case, problem: _has(case, "convolution", lambda t: t.is_integer) and _is_constant(case, "convolution"),
    ),
    Known(
        "folded atan2",
        "ATAN2-1: the evaluator gives NaN for zeros in 16 bits.",
        lambda case, problem: _has(case, "atan2", lambda t: t.bits == 16),
    ),
    Known(
        "folded leading zeros",
        "CLZ-1: the evaluator counts in 64 bits, which negative numbers fill.",
        lambda case, problem: _is_constant(case, "count-leading-zeros"),
    ),
    Known(
        "folded bitcasts to narrow integers",
        "BITCASTCONVERT-4: the evaluator fills half of the parts.",
        lambda case, problem: _is_constant(case, "bitcast-convert") and _has(case, "bitcast-convert", _is_narrow),
    ),
    Known(
        "folded precision of NaN",
        "REDUCEPRECISION-3: the evaluator rounds the mantissa of a NaN away.",
        lambda case, problem: _is_constant(case, "reduce-precision"),
    ),
    Known(
        "reductions of single elements",
        "REDUCE-3: the initial value is left out where each element is one of the result.",
        lambda case, problem: any(map(_reduces_single_elements, case.module.instructions())),
    ),
    Known(
        "folded selections without windows",
        "SELECTANDSCATTER-1: of a constant operand and an empty source the evaluator makes zeros.",
        lambda case, problem: any(map(_selects_nothing, case.module.instructions())),
    ),
    Known(
        "folded rounding of f8e3m4",
        "ROUND-1, ROUNDNEARESTEVEN-1: the evaluator gives NaN for finite numbers.",
        lambda case, problem: any(
            _is_constant(case, op) and _has(case, op, lambda t: t is PrimitiveType.F8E3M4) for op in ROUNDINGS
        ),
    ),
    Known(
        "sorts of two bits",
        "SORT-1: the result is no permutation of the operand.",
        lambda case, problem: _has(case, "sort", lambda t: t.bits == 2),
    ),
    Known(
        "scattered maxima of NaN",
        "REDUCESCATTER-1, MAX-1: a NaN is dropped where a single device has the operand.",
        lambda case, problem: any(_is_scattered_maximum(instruction) for instruction in case.module.instructions()),
    ),
    Known(
        "gradients without elements",
        "BATCHNORMGRAD-1: a sum of no quotients is divided instead, by NaN.",
        lambda case, problem: any(_is_gradient_without_elements(i) for i in case.module.instructions()),
    ),
    Known(
        "factors without NaN",
        "CHOLESKY-5: what is not positive definite has no factor, which a type without NaN cannot say.",
        lambda case, problem: _has(case, "cholesky", lambda t: not has_nan(t.dtype)),
    ),
    Known(
        "stochastic rounding to integers",
        "CONVERT-1: an addition without a clause on the probabilities; XLA rounds less often.",
        lambda case, problem: _has(case, "stochastic-convert", lambda t: t.is_signed),
    ),
    Known(
        "signs of NaN",
        "GEN-7: a NaN that is computed has no sign where it is told apart; XLA's have that of the instruction.",
        lambda case, problem: any(map(tells_nans_apart, case.module.instructions())),
    ),
    Known(
        "empty index vectors",
        "SCATTER-5: without components in index vectors, one of the updates is applied.",
        lambda case, problem: any(_has_empty_vectors(instruction) for instruction in case.module.instructions()),
    ),
    Known(
        "f8e8m0fnu",
        "CONVERT-1: the type has neither zero nor subnormal numbers; XLA converts by way of types that have.",
        lambda case, problem: _has_type(case, PrimitiveType.F8E8M0FNU),
    ),
    Known(
        "integers of complex products",
        "CONVERT-3: sums outside of the range of the integers wrap, where conversions clamp.",
        lambda case, problem: any(_is_integer_of_complex(instruction) for instruction in case.module.instructions()),
    ),
    Known(
        "zeros of complex functions",
        "SQRT-1: the sign of a zero imaginary part, which selects one of two values, is lost.",
        lambda case, problem: any(_has(case, op, lambda t: t.is_complex) for op in MULTIVALUED),
    ),
    Known(
        "overflow of complex functions",
        "UNARY-2: where one factor of a part is 0 and the other one overflows, the part is NaN.",
        lambda case, problem: any(_has(case, op, lambda t: t.is_complex) for op in PRODUCTS_OF_PARTS),
    ),
    Known(
        "padding and infinities",
        "CONVGENERAL-3: products of padding are left out, though that with an infinity is NaN.",
        lambda case, problem: _has(case, "convolution", lambda t: t.is_float or t.is_complex),
    ),
    Known(
        "order of NaNs without sign",
        "TOPK-3: the NaN of a type without negative zero has the bits of one.",
        lambda case, problem: _has(case, "topk", lambda t: t.text.endswith("fnuz")),
    ),
)
