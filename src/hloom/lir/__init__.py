"""The low-level IR between loops and LLVM: typed functions, their builder, verifier and interpreter."""

from hloom.lir.builder import OpenLoop
from hloom.lir.function import AARCH64_TIMER, Attribute, Declaration, Function, Global, LirModule, Need, Zeros
from hloom.lir.function_builder import FunctionBuilder
from hloom.lir.instructions import CallAttribute, FirstLanes
from hloom.lir.masked_builder import Builder
from hloom.lir.types import F32, F64, I1, I8, I32, I64, PTR, VOID, StructType, Type, struct_of, type_of
from hloom.lir.values import (
    Constant,
    IndexValue,
    Parameter,
    Symbol,
    Value,
    constant,
    index_value,
    is_constant_below,
    lane_indices,
    mask_constant,
    poison,
    vector_constant,
    zero,
)

__all__ = [
    "AARCH64_TIMER",
    "F32",
    "F64",
    "I1",
    "I8",
    "I32",
    "I64",
    "PTR",
    "VOID",
    "Attribute",
    "Builder",
    "CallAttribute",
    "Constant",
    "Declaration",
    "FirstLanes",
    "Function",
    "FunctionBuilder",
    "Global",
    "IndexValue",
    "LirModule",
    "Need",
    "OpenLoop",
    "Parameter",
    "StructType",
    "Symbol",
    "Type",
    "Zeros",
    "Value",
    "constant",
    "index_value",
    "is_constant_below",
    "lane_indices",
    "mask_constant",
    "poison",
    "struct_of",
    "type_of",
    "vector_constant",
    "zero",
]
