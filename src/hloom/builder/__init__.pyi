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
        """Computes |x|; for complex numbers the modulus, of the real type (ABS-1).

        The minimum of a signed integer type is its own absolute value.
        """
    def acos(self, operand: Any) -> XlaOp:
        """Computes the inverse cosine (an addition of today's XLA)."""
    def acosh(self, operand: Any) -> XlaOp:
        """Computes the inverse hyperbolic cosine (an addition of today's XLA)."""
    def add(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """Adds `lhs` and `rhs`; logical or for PRED (ADD-1)."""
    def add_dependency(self, operand: Any, token: Any) -> XlaOp:
        """Returns `operand`, but not before `token`; moves no data (an addition of today's XLA)."""
    def after_all(self, *operands: Any) -> XlaOp:
        """Joins any number of tokens into one: users of the result run after all of them (AFTERALL-1, -2)."""
    def all_gather(
        self,
        operand: Any,
        all_gather_dim: int,
        shard_count: int,
        replica_groups: Sequence[Sequence[int]] = ...,
        channel_id: int | None = ...,
    ) -> XlaOp:
        """Concatenates the operands of the `shard_count` members of each group along a dimension (ALLGATHER-1)."""
    def all_reduce(
        self,
        operand: Any,
        computation: Computationlike,
        replica_groups: Sequence[Sequence[int]] = ...,
        channel_id: int | None = ...,
    ) -> XlaOp:
        """Reduces the operands of the members of each group element by element; accepts tuples (ALLREDUCE-1, -2)."""
    def all_to_all(
        self,
        operand: Any,
        split_dimension: int,
        concat_dimension: int,
        split_count: int,
        replica_groups: Sequence[Sequence[int]] = ...,
    ) -> XlaOp:
        """Splits along one dimension, exchanges the blocks in each group, and concatenates along another (ALLTOALL-1,
        -2).
        """
    def and_(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """Bitwise and of integers, logical and of PRED (AND-1)."""
    def asin(self, operand: Any) -> XlaOp:
        """Computes the inverse sine (an addition of today's XLA)."""
    def asinh(self, operand: Any) -> XlaOp:
        """Computes the inverse hyperbolic sine (an addition of today's XLA)."""
    def atan2(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """Computes the angle of the point (x = `rhs`, y = `lhs`) (ATAN2-1).

        For complex numbers, -i log((rhs + i lhs) / sqrt(rhs^2 + lhs^2)).
        """
    def atanh(self, operand: Any) -> XlaOp:
        """Computes the inverse hyperbolic tangent (an addition of today's XLA)."""
    def batch_norm_grad(
        self, operand: Any, scale: Any, mean: Any, variance: Any, grad_output: Any, epsilon: float, feature_index: int
    ) -> XlaOp:
        """Computes the gradients of batch-norm-training (BATCHNORMGRAD-1).

        `grad_output` has the operand's shape; `scale`, `mean` and `variance` are vectors of the feature dimension's size.
        The result is (grad_operand, grad_scale, grad_offset).
        """
    def batch_norm_inference(
        self, operand: Any, scale: Any, offset: Any, mean: Any, variance: Any, epsilon: float, feature_index: int
    ) -> XlaOp:
        """Computes scale * (operand - mean) / sqrt(variance + epsilon) + offset for given moments (BATCHNORMINFERENCE-1).

        `scale`, `offset`, `mean` and `variance` are vectors of the feature dimension's size; the result has the operand's
        shape.
        """
    def batch_norm_training(self, operand: Any, scale: Any, offset: Any, epsilon: float, feature_index: int) -> XlaOp:
        """Normalises each feature by its mean and biased variance, then scales and shifts it (BATCHNORMTRAINING-1, -4).

        `scale` and `offset` are vectors of the feature dimension's size. The result is (output, batch_mean, batch_var).
        """
    def bitcast_convert_type(self, operand: Any, new_element_type: PrimitiveType | str) -> XlaOp:
        """Reinterprets the bits as another element type (BITCASTCONVERT-1 to -3)."""
    def broadcast(self, operand: Any, broadcast_sizes: Sequence[int]) -> XlaOp:
        """Broadcasts to new major dimensions of the given sizes (BROADCAST-1)."""
    def broadcast_in_dim(self, operand: Any, out_dim_size: Sequence[int], broadcast_dimensions: Sequence[int]) -> XlaOp:
        """Broadcasts operand dimension i to dimension `broadcast_dimensions[i]`; sizes of 1 grow (BROADCASTINDIM-1)."""
    def call(self, computation: Computationlike, *args: Any) -> XlaOp:
        """Calls a computation (CALL-1)."""
    def cbrt(self, operand: Any) -> XlaOp:
        """Computes the real cube root, also of negative numbers (CBRT-1)."""
    def ceil(self, operand: Any) -> XlaOp:
        """Rounds up to an integer; ceil(-0.5) = -0 (CEIL-1)."""
    def cholesky(self, a: Any, lower: bool = ...) -> XlaOp:
        """Computes the Cholesky factor of each matrix: a = l l^H with lower-triangular l, or u^H u (CHOLESKY-1 to -5).

        `a` has the shape [.., M, M]. Only the triangle that `lower` selects is read; the other triangle of the result is
        zero. The result for a matrix that is not positive definite is NaN.
        """
    def clamp(self, min: Any, operand: Any, max: Any) -> XlaOp:
        """Clamps elements to [min, max]; `min` and `max` may be scalars (CLAMP-1, CLAMP-2)."""
    def clz(self, operand: Any) -> XlaOp:
        """Counts the leading zero bits in the width of the element type; the width for 0 (CLZ-1)."""
    def collapse(self, operand: Any, dimensions: Sequence[int]) -> XlaOp:
        """Merges consecutive dimensions into one (COLLAPSE-1)."""
    def collective_broadcast(
        self, *operands: Any, channel_id: int | None = ..., replica_groups: Any = ..., constrain_layout: bool = ...
    ) -> XlaOp:
        """Sends the operand of the first member of each group to all members (an addition of today's XLA).

        Devices in no group get zeros.
        """
    def collective_permute(
        self, operand: Any, source_target_pairs: Sequence[tuple[int, int]], channel_id: int | None = ...
    ) -> XlaOp:
        """Sends the operand of each source to its target; devices that are no target get zeros
        (COLLECTIVEPERMUTE-1).
        """
    def complex(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """Combines real and imaginary parts to complex numbers: f32 to c64, f64 to c128 (COMPLEX-1)."""
    def composite_call(
        self,
        computation: Computationlike,
        *args: Any,
        name: str,
        composite_attributes: str | None = ...,
        version: int = ...,
    ) -> XlaOp:
        """A named operation, defined by its decomposition `computation` (COMPOSITECALL-1, -2)."""
    def concat_in_dim(self, operands: Sequence[Any], dimension: int) -> XlaOp:
        """Concatenates arrays along a dimension (CONCATENATE-1)."""
    def conditional(self, index: Any, *arguments: Any) -> XlaOp:
        """Calls one of several computations, in either form of Conditional.

        `conditional(pred, true_operand, true_computation, false_operand, false_computation)` (CONDITIONAL-1), or
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
        """Converts elements to another type (CONVERT-1)."""
    def copy(self, operand: Any) -> XlaOp:
        """Copies the operand, perhaps to another layout (an addition of today's XLA)."""
    def cos(self, operand: Any) -> XlaOp:
        """Computes the cosine (COS-1)."""
    def cosh(self, operand: Any) -> XlaOp:
        """Computes the hyperbolic cosine (an addition of today's XLA)."""
    def cross_replica_sum(self, operand: Any, replica_groups: Sequence[Sequence[int]] = ...) -> XlaOp:
        """An AllReduce with addition (CROSSREPLICASUM-1)."""
    def custom_call(
        self, target_name: str, args: Sequence[Any], shape: Shape, *, has_side_effect: bool = ..., opaque: str = ...
    ) -> XlaOp:
        """Calls the function registered as `target_name` (CUSTOMCALL-1)."""
    def div(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """Divides `lhs` by `rhs`: floats by IEEE 754, integers toward zero (DIV-1, DIV-2).

        For integers, x / 0 = -1 and minimum / -1 = minimum.
        """
    def dot(self, lhs: Any, rhs: Any) -> XlaOp:
        """Product of vectors or matrices: contracts the last dimension of lhs with the first of rhs (DOT-1)."""
    def dot_general(
        self, lhs: Any, rhs: Any, dimension_numbers: Any, preferred_element_type: PrimitiveType | str | None = ...
    ) -> XlaOp:
        """Product over contracting dimensions, for each index of the batch dimensions (DOTGENERAL-1).

        `dimension_numbers` is a mapping, or an object, with `lhs_contracting_dimensions`, `rhs_contracting_dimensions`,
        `lhs_batch_dimensions` and `rhs_batch_dimensions`; missing ones are empty.
        """
    def dynamic_slice(self, operand: Any, start_indices: Sequence[Any], size_indices: Sequence[int]) -> XlaOp:
        """Takes the sub-array of the given sizes at start indices known at run time (DYNAMICSLICE-1)."""
    def dynamic_update_slice(self, operand: Any, update: Any, start_indices: Sequence[Any]) -> XlaOp:
        """Overwrites a part of `operand` with `update`, at start indices known at run time (DYNAMICUPDATESLICE-1)."""
    def eq(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """lhs EQ rhs, element by element (COMPARE-1)."""
    def eq_total_order(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """lhs EQ rhs, element by element in total order (COMPARE-1)."""
    def erf(self, operand: Any) -> XlaOp:
        """Computes the error function (ERF-1)."""
    def exp(self, operand: Any) -> XlaOp:
        """Computes e^x (EXP-1)."""
    def expm1(self, operand: Any) -> XlaOp:
        """Computes e^x - 1, accurate near 0 (EXPM1-1)."""
    def fft(self, operand: Any, fft_type: Any, fft_length: Any) -> XlaOp:
        """Computes the discrete Fourier transform of the last 1 to 3 dimensions (FFT-1 to FFT-5).

        FFT and IFFT map complex to complex arrays, RFFT real arrays to the non-redundant half of the complex result, IRFFT
        such halves back. `fft_length` holds the lengths in the time domain, which are the sizes of the transformed
        dimensions. Inverse transforms divide by the number of elements.
        """
    def floor(self, operand: Any) -> XlaOp:
        """Rounds down to an integer (FLOOR-1)."""
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
        """Gathers slices of the operand at start indices into one array (GATHER-1)."""
    def ge(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """lhs GE rhs, element by element (COMPARE-1)."""
    def ge_total_order(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """lhs GE rhs, element by element in total order (COMPARE-1)."""
    def get_dimension_size(self, operand: Any, dimension: int) -> XlaOp:
        """Returns the size of a dimension as s32[], the actual one if the dimension is dynamic (GETDIMENSIONSIZE-1)."""
    def get_tuple_element(self, tuple: Any, index: int) -> XlaOp:
        """Extracts the element of a tuple at a constant index (GETTUPLEELEMENT-1)."""
    def gt(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """lhs GT rhs, element by element (COMPARE-1)."""
    def gt_total_order(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """lhs GT rhs, element by element in total order (COMPARE-1)."""
    def imag(self, operand: Any) -> XlaOp:
        """Takes the imaginary part; 0 for a real operand (IMAG-1)."""
    def infeed(self, shape: Shape) -> XlaOp:
        """Reads an item of `shape` from the infeed queue; infeeds run in the order in which they are built (INFEED-1,
        -2).
        """
    def iota(self, shape: Shape, iota_dimension: int) -> XlaOp:
        """Creates an array that counts 0, 1, 2, .. along a dimension (IOTA-1)."""
    def is_finite(self, operand: Any) -> XlaOp:
        """Tests whether elements are neither +-inf nor NaN; the result is PRED (ISFINITE-1)."""
    def le(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """lhs LE rhs, element by element (COMPARE-1)."""
    def le_total_order(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """lhs LE rhs, element by element in total order (COMPARE-1)."""
    def log(self, operand: Any) -> XlaOp:
        """Computes the natural logarithm; log(0) = -inf, NaN for negative real numbers (LOG-1)."""
    def log1p(self, operand: Any) -> XlaOp:
        """Computes ln(1 + x), accurate near 0; log1p(-1) = -inf (LOG1P-1)."""
    def logistic(self, operand: Any) -> XlaOp:
        """Computes the logistic function 1 / (1 + e^-x) (LOGISTIC-1)."""
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

        HLO has no static operands (MAP-3): constants become part of the mapped computation, other scalars are broadcast
        and mapped along.
        """
    def max(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """Takes the larger element; NaN if either is, max(-0, +0) = +0; logical or for PRED (MAX-1)."""
    def min(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """Takes the smaller element; NaN if either is, min(-0, +0) = -0; logical and for PRED (MIN-1)."""
    def mul(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """Multiplies `lhs` and `rhs`; logical and for PRED (MUL-1)."""
    def mulhi(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """Computes the high half of the double-width product of integers (an addition of today's XLA)."""
    def ne(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """lhs NE rhs, element by element (COMPARE-1)."""
    def ne_total_order(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """lhs NE rhs, element by element in total order (COMPARE-1)."""
    def neg(self, operand: Any) -> XlaOp:
        """Negates elements; integers wrap, -(0.0) = -0 (NEG-1)."""
    def not_(self, operand: Any) -> XlaOp:
        """Logical not of PRED, bitwise complement of integers (NOT-1)."""
    def optimization_barrier(self, operand: Any) -> XlaOp:
        """Returns the operand; optimisations move no computation across it (OPTIMIZATIONBARRIER-1, -2)."""
    def or_(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """Bitwise or of integers, logical or of PRED (OR-1)."""
    def outfeed(self, operand: Any) -> None:
        """Puts a value into the outfeed queue; outfeeds run in the order in which they are built (INFEED-4)."""
    def pad(self, operand: Any, padding_value: Any, padding_config: Any) -> XlaOp:
        """Inserts `padding_value` between elements, then at the edges; negative edges remove elements (PAD-1, PAD-2).

        Interior padding must be >= 0. The size of a dimension becomes low + (size - 1) * (interior + 1) + 1 + high.
        """
    def partition_id(self) -> XlaOp:
        """Returns the id of the executing partition as u32[] (an addition of today's XLA)."""
    def population_count(self, operand: Any) -> XlaOp:
        """Counts the bits set in the width of the element type (POPULATIONCOUNT-1)."""
    def pow(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """Raises `lhs` to the power `rhs`: floats as IEEE pow; integers wrap (POW-1).

        A negative exponent of integers gives 1 for base 1, 1 or -1 for base -1, else 0 (POW-2).
        """
    def real(self, operand: Any) -> XlaOp:
        """Takes the real part; a real operand is returned unchanged (REAL-1)."""
    def recv(self, shape: Shape, channel_handle: int) -> XlaOp:
        """Receives the operand of the Send of the same channel (RECV-1)."""
    def reduce(self, operands: Any, init_values: Any, computation: Computationlike, dimensions: Sequence[int]) -> XlaOp:
        """Reduces one or several operands along dimensions (REDUCE-1)."""
    def reduce_precision(self, operand: Any, exponent_bits: int, mantissa_bits: int) -> XlaOp:
        """Reduces the precision of elements: rounds to a float format with fewer bits and back (REDUCEPRECISION-1 to -5).

        `exponent_bits` >= 1 and `mantissa_bits` >= 0. Values below the smallest normal number of the format become zero.
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
        """An AllReduce whose result is split along a dimension; member i of a group gets block i (REDUCESCATTER-1)."""
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
        """Computes the remainder of the division, with the sign of `lhs`: -7 rem 2 = -1 (REM-1, REM-2).

        For integers, x rem 0 = x and minimum rem -1 = 0; floats as C's fmod.
        """
    def replica_id(self) -> XlaOp:
        """Returns the id of the executing replica, in [0, N), as u32[] (REPLICAID-1)."""
    def reshape(self, operand: Any, dimensions: Sequence[int]) -> XlaOp:
        """Arranges the elements, in row-major order, in other dimensions (RESHAPE-1)."""
    def rev(self, operand: Any, dimensions: Any) -> XlaOp:
        """Reverses the order of elements along `dimensions`: index i becomes N - 1 - i (REV-1).

        N is the actual size of a dynamic dimension.
        """
    def rng_bit_generator(self, algorithm: Any, initial_state: Any, shape: Shape) -> XlaOp:
        """Uniform random bits of `shape` and a new state: (state, data) (RNGBITGENERATOR-1)."""
    def rng_normal(self, mu: Any, sigma: Any, shape: Shape) -> XlaOp:
        """Random values of the normal distribution N(mu, sigma) (RNGNORMAL-1)."""
    def rng_uniform(self, a: Any, b: Any, shape: Shape) -> XlaOp:
        """Random values, uniform over [a, b) (RNGUNIFORM-1)."""
    def round(self, operand: Any) -> XlaOp:
        """Rounds to the nearest integer, ties away from zero: 2.5 -> 3, -0.5 -> -1, 0.49999997 -> 0 (ROUND-1)."""
    def round_nearest_even(self, operand: Any) -> XlaOp:
        """Rounds to the nearest integer, ties to even: 2.5 -> 2, -0.5 -> -0 (ROUNDNEARESTEVEN-1)."""
    def rsqrt(self, operand: Any) -> XlaOp:
        """Computes 1 / sqrt(x); +-inf for +-0 (RSQRT-1)."""
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
        """Combines windows of `updates` into `operands` at indices (SCATTER-1)."""
    def select(self, pred: Any, on_true: Any, on_false: Any) -> XlaOp:
        """Selects `on_true` where `pred`, else `on_false`; also whole tuples, by a scalar `pred` (SELECT-1 to
        SELECT-3).
        """
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
        """Selects one element of each window and combines `source` into its position (SELECTANDSCATTER-1)."""
    def send(self, operand: Any, channel_handle: int) -> None:
        """Sends a value to the Recv of the same channel (SEND-1)."""
    def set_dimension_size(self, operand: Any, size: Any, dimension: int) -> XlaOp:
        """Makes a dimension dynamic, with a size known at run time (SETDIMENSIONSIZE-1)."""
    def shift_left(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """Shifts `lhs` left by `rhs` bits, inserting zeros; amounts outside [0, bits) give 0 (SHIFTLEFT-1)."""
    def shift_right_arithmetic(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """Shifts `lhs` right by `rhs` bits, copying the sign bit (SHIFTRIGHTARITHMETIC-1).

        Amounts outside [0, bits) give the sign bit in all bits. Unsigned types have their top bit as the sign bit.
        """
    def shift_right_logical(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """Shifts `lhs` right by `rhs` bits, inserting zeros; amounts outside [0, bits) give 0 (SHIFTRIGHTLOGICAL-1)."""
    def sign(self, operand: Any) -> XlaOp:
        """Computes the sign: -1, -0, NaN, +0 or 1; for complex numbers x / |x|, 0 for 0 (SIGN-1)."""
    def sin(self, operand: Any) -> XlaOp:
        """Computes the sine (SIN-1)."""
    def sinh(self, operand: Any) -> XlaOp:
        """Computes the hyperbolic sine (an addition of today's XLA)."""
    def slice(
        self,
        operand: Any,
        start_indices: Sequence[int],
        limit_indices: Sequence[int],
        strides: Sequence[int] | None = ...,
    ) -> XlaOp:
        """Takes the elements start, start + stride, .. below limit in each dimension (SLICE-1)."""
    def sort(self, operands: Any, comparator: Computationlike, dimension: int = ..., is_stable: bool = ...) -> XlaOp:
        """Sorts operands together along a dimension by a less-than comparator (SORT-1 to SORT-5)."""
    def sqrt(self, operand: Any) -> XlaOp:
        """Computes the square root; NaN for negative real numbers, sqrt(-0) = -0 (SQRT-1)."""
    def sub(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """Subtracts `rhs` from `lhs` (SUB-1)."""
    def tan(self, operand: Any) -> XlaOp:
        """Computes the tangent (TAN-1)."""
    def tanh(self, operand: Any) -> XlaOp:
        """Computes the hyperbolic tangent; +-1 at +-inf (TANH-1)."""
    def top_k(self, operand: Any, k: int, largest: bool = ...) -> XlaOp:
        """Takes the k largest (or smallest) elements along the last dimension, best first; (values, s32 indices) (TOPK-1).

        0 <= k <= size of the last dimension. Of equal elements the one with the lower index comes first; floats are
        compared in total order (TOPK-2, TOPK-3).
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

        `a` has the shape [.., M, M], `b` and the result [.., M, K], or [.., K, M] unless `left_side`. Only the triangle of
        `a` that `lower` selects is read; with `unit_diagonal` its diagonal is taken as 1.
        """
    def tuple(self, *elements: Any) -> XlaOp:
        """Groups any number of values in a tuple, which may be empty and nest (TUPLE-1)."""
    def while_(self, condition: Computationlike, body: Computationlike, init: Any) -> XlaOp:
        """Applies `body` to a value, initially `init`, while `condition` holds (WHILE-1)."""
    def xor(self, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = ...) -> XlaOp:
        """Bitwise exclusive or of integers, logical exclusive or of PRED (XOR-1)."""
