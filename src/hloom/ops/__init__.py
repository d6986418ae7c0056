"""The operations, one class each, in families as the specification groups them.

Importing this package registers all of them in `hloom.ops.operation.OPERATIONS`.
"""

from hloom.ops import (
    async_collectives,
    batch_norm,
    broadcast,
    collectives,
    communication,
    compare,
    control_flow,
    convert,
    convolution,
    custom_call,
    device_index,
    dot,
    dynamic_size,
    elementwise_binary,
    elementwise_unary,
    fft,
    gather,
    linear_algebra,
    pad,
    ragged_all_to_all,
    reduce,
    reduce_window,
    reshape,
    rng,
    scan,
    scatter,
    select,
    slice,
    sort,
    structure,
    transpose,
)
