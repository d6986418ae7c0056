"""Made by `tools/stubs.py` from the declarations and the builder's methods."""

from collections.abc import Sequence
from typing import Any

from hloom.builder.core import BuilderCore
from hloom.builder.xla_op import Computationlike, XlaComputation, XlaOp
from hloom.shape import Shape
from hloom.types import PrimitiveType

__all__ = ["XlaBuilder", "XlaComputation", "XlaOp"]

class XlaBuilder(BuilderCore):
    """Builds one computation: methods add instructions, `build` gives the computation."""

    def abs(self, operand: Any) -> XlaOp:
        """|x|; complex: the modulus, in the real type; the minimum of a signed type stays itself (ABS-1)."""
    def acos(self, operand: Any) -> XlaOp:
        """The inverse cosine (an addition of today's XLA)."""
    def acosh(self, operand: Any) -> XlaOp:
        """The inverse hyperbolic cosine (an addition of today's XLA)."""
    def add(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """lhs + rhs; PRED: logical or (ADD-1)."""
    def add_dependency(self, operand: Any, token: Any) -> XlaOp:
        """Its first operand, to be computed after the token given second; moves no data (an addition of today's XLA)."""
    def after_all(self, *operands: Any) -> XlaOp:
        """Joins any number of tokens into one: what takes the result happens after all of them (AFTERALL-1, -2)."""
    def all_gather(
        self,
        operand: Any,
        all_gather_dim: int,
        shard_count: int,
        replica_groups: Sequence[Sequence[int]] = ...,
        channel_id: int | None = ...,
    ) -> XlaOp:
        """Concatenates the operands of a group's members (ALLGATHER-1)."""
    def all_reduce(
        self,
        operand: Any,
        computation: Computationlike,
        replica_groups: Sequence[Sequence[int]] = ...,
        channel_id: int | None = ...,
    ) -> XlaOp:
        """Reduces the operands of a group's members element by element; tuples too (ALLREDUCE-1, -2)."""
    def all_to_all(
        self,
        operand: Any,
        split_dimension: int,
        concat_dimension: int,
        split_count: int,
        replica_groups: Sequence[Sequence[int]] = ...,
    ) -> XlaOp:
        """Splits along one dimension, exchanges the blocks, and joins them along another (ALLTOALL-1, -2)."""
    def and_(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """Bitwise and; PRED: logical (AND-1)."""
    def asin(self, operand: Any) -> XlaOp:
        """The inverse sine (an addition of today's XLA)."""
    def asinh(self, operand: Any) -> XlaOp:
        """The inverse hyperbolic sine (an addition of today's XLA)."""
    def atan2(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """The angle of the point (x = rhs, y = lhs); complex: -i log((rhs + i lhs) / sqrt(rhs^2 + lhs^2)) (ATAN2-1)."""
    def atanh(self, operand: Any) -> XlaOp:
        """The inverse hyperbolic tangent (an addition of today's XLA)."""
    def batch_norm_grad(
        self, operand: Any, scale: Any, mean: Any, variance: Any, grad_output: Any, epsilon: float, feature_index: int
    ) -> XlaOp:
        """(grad_operand, grad_scale, grad_offset) of batch normalisation (BATCHNORMGRAD-1)."""
    def batch_norm_inference(
        self, operand: Any, scale: Any, offset: Any, mean: Any, variance: Any, epsilon: float, feature_index: int
    ) -> XlaOp:
        """scale * (operand - mean) / sqrt(variance + epsilon) + offset, with given moments (BATCHNORMINFERENCE-1)."""
    def batch_norm_training(self, operand: Any, scale: Any, offset: Any, epsilon: float, feature_index: int) -> XlaOp:
        """(output, batch_mean, batch_var); the variance is biased, from the deviations (BATCHNORMTRAINING-1, -4)."""
    def bitcast_convert_type(self, operand: Any, new_element_type: PrimitiveType | str) -> XlaOp:
        """Reinterprets the bits as another element type (BITCASTCONVERT-1 to -3)."""
    def broadcast(self, operand: Any, broadcast_sizes: Sequence[int]) -> XlaOp:
        """Adds dimensions of these sizes in front (BROADCAST-1)."""
    def broadcast_in_dim(self, operand: Any, out_dim_size: Sequence[int], broadcast_dimensions: Sequence[int]) -> XlaOp:
        """Operand dimension i becomes dimension `broadcast_dimensions[i]`; sizes of 1 grow (BROADCASTINDIM-1)."""
    def call(self, computation: Computationlike, *args: Any) -> XlaOp:
        """Invokes a computation (CALL-1)."""
    def cbrt(self, operand: Any) -> XlaOp:
        """The real cube root, also of negative numbers (CBRT-1)."""
    def ceil(self, operand: Any) -> XlaOp:
        """The smallest integer >= x; ceil(-0.5) = -0 (CEIL-1)."""
    def cholesky(self, a: Any, lower: bool = ...) -> XlaOp:
        """a = l l^H with lower-triangular l, or u^H u with upper-triangular u, for each matrix (CHOLESKY-1 to -5).

        Reads the triangle that `lower` names; the other one of the result is zero. A matrix that is not positive definite
        becomes NaN everywhere.
        """
    def clamp(self, min: Any, operand: Any, max: Any) -> XlaOp:
        """Min(Max(min, operand), max), element by element; scalars apply to all elements (CLAMP-1, CLAMP-2)."""
    def clz(self, operand: Any) -> XlaOp:
        """The number of leading zero bits in T's width; of 0 the width (CLZ-1)."""
    def collapse(self, operand: Any, dimensions: Sequence[int]) -> XlaOp:
        """Replaces a run of consecutive dimensions by one with their product (COLLAPSE-1)."""
    def collective_broadcast(
        self, *operands: Any, channel_id: int | None = ..., replica_groups: Any = ..., constrain_layout: bool = ...
    ) -> XlaOp:
        """The first member of each group gives its operand to all; who is in no group gets zeros (an addition)."""
    def collective_permute(
        self, operand: Any, source_target_pairs: Sequence[tuple[int, int]], channel_id: int | None = ...
    ) -> XlaOp:
        """The operand of each source becomes the result on its target (COLLECTIVEPERMUTE-1)."""
    def complex(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """lhs + i rhs: c64 of f32, c128 of f64 (COMPLEX-1)."""
    def composite_call(
        self,
        computation: Computationlike,
        *args: Any,
        name: str,
        composite_attributes: str | None = ...,
        version: int = ...,
    ) -> XlaOp:
        """A named operation whose meaning is its decomposition, `computation` (COMPOSITECALL-1, -2)."""
    def concat_in_dim(self, operands: Sequence[Any], dimension: int) -> XlaOp:
        """Joins arrays along a dimension (CONCATENATE-1)."""
    def conditional(self, index: Any, *arguments: Any) -> XlaOp:
        """Both forms of Conditional.

        `conditional(pred, true_operand, true_computation, false_operand, false_computation)` (CONDITIONAL-1), and
        `conditional(branch_index, branch_computations, branch_operands)` (CONDITIONAL-3).
        """
    def conv(
        self,
        lhs: Any,
        rhs: Any,
        window_strides: Sequence[int],
        padding: str,
        feature_group_count: int = ...,
        batch_group_count: int = ...,
    ) -> XlaOp:
        """Convolution with padding "SAME" or "VALID" (CONV-1)."""
    def conv_with_general_padding(
        self,
        lhs: Any,
        rhs: Any,
        window_strides: Sequence[int],
        padding: Any,
        lhs_dilation: Sequence[int] | None = ...,
        rhs_dilation: Sequence[int] | None = ...,
        feature_group_count: int = ...,
        batch_group_count: int = ...,
        dimension_numbers: Any = ...,
        preferred_element_type: PrimitiveType | str | None = ...,
    ) -> XlaOp:
        """Convolution over n spatial dimensions with any padding, dilations and groups (CONVGENERAL-1 to -10)."""
    def convert_element_type(self, operand: Any, new_element_type: PrimitiveType | str) -> XlaOp:
        """Converts values element by element (CONVERT-1)."""
    def copy(self, operand: Any) -> XlaOp:
        """A copy of the operand, perhaps in another layout (an addition of today's XLA)."""
    def cos(self, operand: Any) -> XlaOp:
        """cos(x) (COS-1)."""
    def cosh(self, operand: Any) -> XlaOp:
        """The hyperbolic cosine (an addition of today's XLA)."""
    def cross_replica_sum(self, operand: Any, replica_groups: Sequence[Sequence[int]] = ...) -> XlaOp:
        """AllReduce with addition (CROSSREPLICASUM-1)."""
    def custom_call(
        self, target_name: str, args: Sequence[Any], shape: Shape, *, has_side_effect: bool = ..., opaque: str = ...
    ) -> XlaOp:
        """Calls the function registered as `target_name` (CUSTOMCALL-1)."""
    def div(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """Integers: the quotient toward zero, x / 0 = -1, minimum / -1 = minimum; floats: IEEE (DIV-1, DIV-2)."""
    def dot(self, lhs: Any, rhs: Any) -> XlaOp:
        """Vector and matrix products: the last dimension of lhs with the first of rhs (DOT-1)."""
    def dot_general(
        self, lhs: Any, rhs: Any, dimension_numbers: Any, preferred_element_type: PrimitiveType | str | None = ...
    ) -> XlaOp:
        """Sums of products over contracting dimensions, for each batch index (DOTGENERAL-1).

        `dimension_numbers` is a mapping, or an object, with `lhs_contracting_dimensions`, `rhs_contracting_dimensions`,
        `lhs_batch_dimensions` and `rhs_batch_dimensions`; missing ones are empty.
        """
    def dynamic_slice(self, operand: Any, start_indices: Sequence[Any], size_indices: Sequence[int]) -> XlaOp:
        """The sub-array of these sizes at start indices known at run time (DYNAMICSLICE-1)."""
    def dynamic_update_slice(self, operand: Any, update: Any, start_indices: Sequence[Any]) -> XlaOp:
        """`operand` with `update` written over it at start indices known at run time (DYNAMICUPDATESLICE-1)."""
    def eq(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """lhs EQ rhs, element by element (COMPARE-1)."""
    def eq_total_order(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """lhs EQ rhs, element by element in total order (COMPARE-1)."""
    def erf(self, operand: Any) -> XlaOp:
        """The error function (ERF-1)."""
    def exp(self, operand: Any) -> XlaOp:
        """e^x (EXP-1)."""
    def expm1(self, operand: Any) -> XlaOp:
        """e^x - 1, accurate near 0 (EXPM1-1)."""
    def fft(self, operand: Any, fft_type: Any, fft_length: Any) -> XlaOp:
        """FFT and IFFT: complex to complex; RFFT: real to half of the complex result; IRFFT: back (FFT-1 to FFT-5).

        `fft_length` has the lengths in the time domain. Inverse transforms divide by the number of elements.
        """
    def floor(self, operand: Any) -> XlaOp:
        """The largest integer <= x (FLOOR-1)."""
    def gather(
        self,
        operand: Any,
        start_indices: Any,
        index_vector_dim: int,
        offset_dims: Sequence[int],
        slice_sizes: Sequence[int],
        collapsed_slice_dims: Sequence[int],
        start_index_map: Sequence[int],
        indices_are_sorted: bool = ...,
        operand_batching_dims: Sequence[int] = ...,
        start_indices_batching_dims: Sequence[int] = ...,
    ) -> XlaOp:
        """Stitches slices of the operand at start indices into one array (GATHER-1)."""
    def ge(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """lhs GE rhs, element by element (COMPARE-1)."""
    def ge_total_order(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """lhs GE rhs, element by element in total order (COMPARE-1)."""
    def get_dimension_size(self, operand: Any, dimension: int) -> XlaOp:
        """The size of a dimension as an S32 scalar; the actual one where it is dynamic (GETDIMENSIONSIZE-1)."""
    def get_tuple_element(self, tuple: Any, index: int) -> XlaOp:
        """The element of a tuple at a constant index (GETTUPLEELEMENT-1)."""
    def gt(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """lhs GT rhs, element by element (COMPARE-1)."""
    def gt_total_order(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """lhs GT rhs, element by element in total order (COMPARE-1)."""
    def imag(self, operand: Any) -> XlaOp:
        """The imaginary part; 0 of a real operand (IMAG-1)."""
    def infeed(self, shape: Shape) -> XlaOp:
        """Reads one item of `shape` from the infeed queue; infeeds happen in the order built (INFEED-1, -2)."""
    def iota(self, shape: Shape, iota_dimension: int) -> XlaOp:
        """0, 1, 2 .. along a dimension (IOTA-1)."""
    def is_finite(self, operand: Any) -> XlaOp:
        """True where the element is neither +-inf nor NaN (ISFINITE-1)."""
    def le(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """lhs LE rhs, element by element (COMPARE-1)."""
    def le_total_order(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """lhs LE rhs, element by element in total order (COMPARE-1)."""
    def log(self, operand: Any) -> XlaOp:
        """ln(x); log(0) = -inf, of negative numbers NaN (LOG-1)."""
    def log1p(self, operand: Any) -> XlaOp:
        """ln(1 + x), accurate near 0; log1p(-1) = -inf (LOG1P-1)."""
    def logistic(self, operand: Any) -> XlaOp:
        """1 / (1 + e^-x) (LOGISTIC-1)."""
    def lt(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """lhs LT rhs, element by element (COMPARE-1)."""
    def lt_total_order(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """lhs LT rhs, element by element in total order (COMPARE-1)."""
    def map(
        self,
        operands: Any,
        computation: Computationlike,
        dimensions: Sequence[int],
        static_operands: Sequence[Any] = ...,
    ) -> XlaOp:
        """Applies a scalar computation to the elements at equal indices (MAP-1).

        HLO has no place for static operands (MAP-3): constants move into the mapped computation, other scalars are
        broadcast and mapped along.
        """
    def max(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """The larger; NaN if either is; max(-0, +0) = +0; PRED: or (MAX-1)."""
    def min(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """The smaller; NaN if either is; min(-0, +0) = -0; PRED: and (MIN-1)."""
    def mul(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """lhs * rhs; PRED: logical and (MUL-1)."""
    def mulhi(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """The high half of the double-width product of two integers (an addition of today's XLA)."""
    def ne(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """lhs NE rhs, element by element (COMPARE-1)."""
    def ne_total_order(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """lhs NE rhs, element by element in total order (COMPARE-1)."""
    def neg(self, operand: Any) -> XlaOp:
        """-x; integers wrap; -0 from 0.0 (NEG-1)."""
    def not_(self, operand: Any) -> XlaOp:
        """Logical not of PRED, bitwise complement of integers (NOT-1)."""
    def optimization_barrier(self, operand: Any) -> XlaOp:
        """The identity, over which no optimisation moves computation (OPTIMIZATIONBARRIER-1, -2)."""
    def or_(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """Bitwise or; PRED: logical (OR-1)."""
    def outfeed(self, operand: Any) -> None:
        """Puts a value into the outfeed queue; outfeeds happen in the order built (INFEED-4)."""
    def pad(self, operand: Any, padding_value: Any, padding_config: Any) -> XlaOp:
        """Puts values between neighbours, then at the edges; negative edges remove elements (PAD-1, PAD-2)."""
    def partition_id(self) -> XlaOp:
        """The id of the partition that executes (an addition)."""
    def population_count(self, operand: Any) -> XlaOp:
        """The number of bits set in T's width (POPULATIONCOUNT-1)."""
    def pow(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """lhs to the power rhs; floats: IEEE pow; integers wrap, negative exponents as POW-2 says (POW-1, POW-2)."""
    def real(self, operand: Any) -> XlaOp:
        """The real part; a real operand is returned as it is (REAL-1)."""
    def recv(self, shape: Shape, channel_handle: int) -> XlaOp:
        """Receives what the Send of the channel sends (RECV-1)."""
    def reduce(self, operands: Any, init_values: Any, computation: Computationlike, dimensions: Sequence[int]) -> XlaOp:
        """Reduces dimensions of one or several operands into scalars (REDUCE-1)."""
    def reduce_precision(self, operand: Any, exponent_bits: int, mantissa_bits: int) -> XlaOp:
        """Rounds to a float format of fewer bits and back (REDUCEPRECISION-1 to -5).

        Values below the smallest normal number of the format become zero.
        """
    def reduce_scatter(
        self,
        operand: Any,
        computation: Computationlike,
        scatter_dimension: int,
        shard_count: int,
        replica_groups: Sequence[Sequence[int]] = ...,
        channel_id: int | None = ...,
    ) -> XlaOp:
        """An AllReduce whose result is split; member i of a group gets block i (REDUCESCATTER-1)."""
    def reduce_window(
        self,
        operands: Any,
        init_values: Any,
        computation: Computationlike,
        window_dimensions: Sequence[int],
        window_strides: Sequence[int] | None = ...,
        base_dilations: Sequence[int] | None = ...,
        window_dilations: Sequence[int] | None = ...,
        padding: Any = ...,
    ) -> XlaOp:
        """Reduces the elements of each window (REDUCEWINDOW-1)."""
    def rem(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """The sign of the dividend: -7 rem 2 = -1; integers: x rem 0 = x, minimum rem -1 = 0; floats: fmod (REM-1, -2)."""
    def replica_id(self) -> XlaOp:
        """The id of the replica that executes, in [0, N) (REPLICAID-1)."""
    def reshape(self, operand: Any, dimensions: Sequence[int]) -> XlaOp:
        """The elements in row-major order in other dimensions (RESHAPE-1)."""
    def rev(self, operand: Any, dimensions: Any) -> XlaOp:
        """Index i in each dimension listed becomes N - 1 - i (REV-1); of a dynamic dimension N is the actual size."""
    def rng_bit_generator(self, algorithm: Any, initial_state: Any, shape: Shape) -> XlaOp:
        """Uniform random bits and a new state: (state, data) (RNGBITGENERATOR-1)."""
    def rng_normal(self, mu: Any, sigma: Any, shape: Shape) -> XlaOp:
        """Numbers of the normal distribution N(mu, sigma) (RNGNORMAL-1)."""
    def rng_uniform(self, a: Any, b: Any, shape: Shape) -> XlaOp:
        """Numbers uniform over [a, b) (RNGUNIFORM-1)."""
    def round(self, operand: Any) -> XlaOp:
        """The nearest integer, ties away from zero: 2.5 -> 3, -0.5 -> -1, 0.49999997 -> 0 (ROUND-1)."""
    def round_nearest_even(self, operand: Any) -> XlaOp:
        """The nearest integer, ties to even: 2.5 -> 2, -0.5 -> -0 (ROUNDNEARESTEVEN-1)."""
    def rsqrt(self, operand: Any) -> XlaOp:
        """1 / sqrt(x); of +-0 +-inf (RSQRT-1)."""
    def scatter(
        self,
        operands: Any,
        scatter_indices: Any,
        updates: Any,
        update_computation: Computationlike,
        index_vector_dim: int,
        update_window_dims: Sequence[int],
        inserted_window_dims: Sequence[int],
        scatter_dims_to_operand_dims: Sequence[int],
        indices_are_sorted: bool = ...,
        unique_indices: bool = ...,
        input_batching_dims: Sequence[int] = ...,
        scatter_indices_batching_dims: Sequence[int] = ...,
    ) -> XlaOp:
        """Combines windows of updates into operands at indices (SCATTER-1)."""
    def select(self, pred: Any, on_true: Any, on_false: Any) -> XlaOp:
        """`on_true` where `pred`, else `on_false`; tuples with a scalar `pred` too (SELECT-1 to SELECT-3)."""
    def select_and_scatter(
        self,
        operand: Any,
        select: Computationlike,
        window_dimensions: Sequence[int],
        window_strides: Sequence[int],
        padding: Any,
        source: Any,
        init_value: Any,
        scatter: Computationlike,
    ) -> XlaOp:
        """Selects one element of each window and scatters `source` there (SELECTANDSCATTER-1)."""
    def send(self, operand: Any, channel_handle: int) -> None:
        """Sends a value to the Recv of the channel (SEND-1)."""
    def set_dimension_size(self, operand: Any, size: Any, dimension: int) -> XlaOp:
        """Makes a dimension dynamic, with its size known at run time (SETDIMENSIONSIZE-1)."""
    def shift_left(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """Zeros enter from the right; an amount outside [0, bits) gives 0 (SHIFTLEFT-1)."""
    def shift_right_arithmetic(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """Copies of the sign bit enter; an amount outside [0, bits) leaves the sign alone (SHIFTRIGHTARITHMETIC-1)."""
    def shift_right_logical(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """Zeros enter from the left, for signed types too; an amount outside [0, bits) gives 0 (SHIFTRIGHTLOGICAL-1)."""
    def sign(self, operand: Any) -> XlaOp:
        """-1, -0, NaN, +0 or 1; complex: x / |x|, 0 for 0 (SIGN-1)."""
    def sin(self, operand: Any) -> XlaOp:
        """sin(x) (SIN-1)."""
    def sinh(self, operand: Any) -> XlaOp:
        """The hyperbolic sine (an addition of today's XLA)."""
    def slice(
        self,
        operand: Any,
        start_indices: Sequence[int],
        limit_indices: Sequence[int],
        strides: Sequence[int] | None = ...,
    ) -> XlaOp:
        """The elements start, start + stride, .. below limit in each dimension (SLICE-1)."""
    def sort(self, operands: Any, comparator: Computationlike, dimension: int = ..., is_stable: bool = ...) -> XlaOp:
        """Sorts operands together along a dimension by a less-than comparator (SORT-1 to SORT-5)."""
    def sqrt(self, operand: Any) -> XlaOp:
        """The square root; of negative numbers NaN, sqrt(-0) = -0 (SQRT-1)."""
    def sub(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """lhs - rhs (SUB-1)."""
    def tan(self, operand: Any) -> XlaOp:
        """tan(x) (TAN-1)."""
    def tanh(self, operand: Any) -> XlaOp:
        """The hyperbolic tangent; +-1 at +-inf (TANH-1)."""
    def top_k(self, operand: Any, k: int, largest: bool = ...) -> XlaOp:
        """The k largest (or smallest) elements of the last dimension, best first, and their s32 indices (TOPK-1).

        Of equal elements the one with the lower index comes first; floats by total order (TOPK-2, TOPK-3).
        """
    def transpose(self, operand: Any, permutation: Any) -> XlaOp:
        """Permutes dimensions: result dimension i is operand dimension `permutation[i]` (TRANSPOSE-1)."""
    def triangular_solve(
        self,
        a: Any,
        b: Any,
        left_side: bool = ...,
        lower: bool = ...,
        unit_diagonal: bool = ...,
        transpose_a: Any = ...,
    ) -> XlaOp:
        """Solves op(a) x = b, or x op(a) = b, by substitution (TRIANGULARSOLVE-1 to -4).

        Only the triangle of a that `lower` names is read; with `unit_diagonal` the diagonal counts as 1.
        """
    def tuple(self, *elements: Any) -> XlaOp:
        """A tuple of any number of values; may be empty and nest (TUPLE-1)."""
    def while_(self, condition: Computationlike, body: Computationlike, init: Any) -> XlaOp:
        """Runs `body` as long as `condition` holds, starting from `init` (WHILE-1)."""
    def xor(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """Bitwise exclusive or; PRED: logical (XOR-1)."""
