"""Custom assembly formats of operations that are templates: `FORMATS`, which reader and printer share.

    "stablehlo.transpose": "{operands}, dims = {permutation}{attributes} : {types}"

describes `stablehlo.transpose %0, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>`. Placeholders are:

- `{operands}`: the operands, `{attributes}`: the dictionary of attributes that the template does not name;
- `{types}`: the function type, `{same}`: a single type if all types are equal, else the function type, `{result}`: the
  result's type or the function type, `{select_types}`: the types of predicate and result, or the function type,
  `{operand_types}` and `{results}`: the types of operands and of results;
- `{name}`: an attribute, and `{, word = name}`: an attribute that is omitted with its comma and word if it is absent.

`reader.py`, `regions.py` and `writer.py` have the formats that are not templates. The formats are those of
StableHLO's TableGen files (StablehloOps.td, AssemblyFormat.cpp).
"""

from __future__ import annotations

import re

from hloom.ops.convert import Convert
from hloom.ops.elementwise_binary import Binary
from hloom.ops.elementwise_unary import Unary
from hloom.ops.operation import OPERATIONS
from hloom.ops.select import Clamp

PLACEHOLDER = re.compile(r"\{(, (?:\w+ = )?)?(\w+)\}")
"""A placeholder in a template: the comma and word before an attribute that may be omitted, and the name."""

WINDOW_WORDS = {
    "stride": "window_strides",
    "pad": "padding",
    "lhs_dilate": "lhs_dilation",
    "rhs_dilate": "rhs_dilation",
    "reverse": "window_reversal",
}
"""Words for the attributes of a convolution's window."""

_SAME = "{operands}{attributes} : {same}"
_TYPES = "{operands}{attributes} : {types}"
_ARROW = "{operands}{attributes} : {operand_types} -> {results}"
_BROADCASTING = "{operands}{attributes} : ({operand_types}) -> {results}"

_ELEMENT_WISE = [
    opcode.replace("-", "_")
    for opcode, declaration in OPERATIONS.items()
    if issubclass(declaration, (Unary, Binary, Clamp, Convert))
]
CHLO_NAMES = "acos acosh asin asinh atanh cosh erf mulhi sinh"
"""Element-wise operations of HLO that belong to CHLO, not to StableHLO."""
_CHLO = CHLO_NAMES.split()

FORMATS: dict[str, str] = {
    **{f"stablehlo.{name}": _SAME for name in _ELEMENT_WISE if name not in _CHLO},
    **{f"chlo.{name}": _ARROW for name in _CHLO},
    "stablehlo.after_all": _SAME,
    "stablehlo.bitcast_convert": _TYPES,
    "stablehlo.broadcast_in_dim": "{operands}, dims = {broadcast_dimensions}{attributes} : {types}",
    "stablehlo.cholesky": "{operands}{, lower = lower}{attributes} : {same}",
    "stablehlo.compare": "{comparison_direction}, {operands}{, compare_type}{attributes} : {types}",
    "stablehlo.complex": "{operands}{attributes} : {result}",
    "stablehlo.concatenate": "{operands}, dim = {dimension}{attributes} : {types}",
    "stablehlo.create_token": "{attributes} : {result}",
    "stablehlo.custom_call": "{call_target_name}({operands}){attributes} : {types}",
    "stablehlo.dynamic_reshape": _TYPES,
    "stablehlo.dynamic_slice": "{operands}, sizes = {slice_sizes}{attributes} : {types}",
    "stablehlo.dynamic_update_slice": _TYPES,
    "stablehlo.fft": "{operands}, type = {fft_type}, length = {fft_length}{attributes} : {types}",
    "stablehlo.get_dimension_size": "{operands}, dim = {dimension}{attributes} : {types}",
    "stablehlo.iota": "dim = {iota_dimension}{attributes} : {result}",
    "stablehlo.pad": "{operands}, low = {edge_padding_low}, high = {edge_padding_high}, "
    "interior = {interior_padding}{attributes} : {types}",
    "stablehlo.partition_id": "{attributes} : {result}",
    "stablehlo.reduce_precision": "{operands}, format = e{exponent_bits}m{mantissa_bits}{attributes} : {same}",
    "stablehlo.replica_id": "{attributes} : {result}",
    "stablehlo.reshape": _TYPES,
    "stablehlo.reverse": "{operands}, dims = {dimensions}{attributes} : {same}",
    "stablehlo.rng": "{operands}, distribution = {rng_distribution}{attributes} : {types}",
    "stablehlo.rng_bit_generator": "{operands}, algorithm = {rng_algorithm}{attributes} : {types}",
    "stablehlo.select": "{operands}{attributes} : {select_types}",
    "stablehlo.set_dimension_size": "{operands}, dim = {dimension}{attributes} : {types}",
    "stablehlo.transpose": "{operands}, dims = {permutation}{attributes} : {types}",
    "chlo.top_k": "({operands}, k = {k}{, largest = largest}){attributes} : {operand_types} -> ({results})",
}

_ONLY_READ = {
    _SAME: "stablehlo.uniform_quantize stablehlo.uniform_dequantize mhlo.copy",
    _TYPES: "stablehlo.real_dynamic_slice stablehlo.dynamic_pad mhlo.bitcast mhlo.add_dependency",
    "{operands}, dims = {broadcast_dimensions}{attributes} : {types}": "stablehlo.dynamic_broadcast_in_dim",
    "{operands}, sizes = {broadcast_sizes}{attributes} : {types}": "stablehlo.broadcast",
    "{operands}, dim = {iota_dimension}{attributes} : {types}": "stablehlo.dynamic_iota",
    "{operands}, config = {einsum_config}{attributes} : {types}": "stablehlo.einsum stablehlo.unary_einsum",
    "{operands}[{index}]{attributes} : {types}": "stablehlo.get_tuple_element",
    "{operands}{attributes} : {result}": "stablehlo.tuple",
    "{name} {operands}{attributes} : {types}": "stablehlo.composite",
    "{callee}({operands}){attributes} : {types}": "func.call",
    "{sym_name} = {mesh}{attributes}": "sdy.mesh",
    "{operands} {sharding}{attributes} : {result}": "sdy.sharding_constraint sdy.reshard",
    "{operands} allowed_direction = {allowed_direction}{attributes} : {result}": "sdy.propagation_barrier",
    "{operands} group_id = {group_id}{attributes} : {operand_types}": "sdy.sharding_group",
    _ARROW: "chlo.atan chlo.bessel_i1e chlo.conj chlo.tan chlo.constant_like chlo.digamma chlo.erf_inv chlo.erfc "
    "chlo.is_inf chlo.is_neg_inf chlo.is_pos_inf chlo.lgamma chlo.square chlo.next_after chlo.polygamma chlo.zeta",
    _BROADCASTING: "chlo.broadcast_next_after chlo.broadcast_polygamma chlo.broadcast_zeta chlo.broadcast_compare "
    "chlo.broadcast_select",
}

READ_FORMATS: dict[str, str] = {
    **FORMATS,
    **{name: template for template, names in _ONLY_READ.items() for name in names.split()},
    **{
        f"chlo.broadcast_{opcode.replace('-', '_')}": _BROADCASTING
        for opcode, declaration in OPERATIONS.items()
        if issubclass(declaration, Binary)
    },
    **{f"mhlo.{name}": _SAME for name in _CHLO},
    "mhlo.topk": FORMATS["chlo.top_k"],
}
"""The formats that are read: also those of operations that are printed in generic form."""
