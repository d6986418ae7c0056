"""XlaBuilder and XlaOp: the operations of the specification, with its names in snake_case and its arguments.

Methods whose operation is one HLO instruction with inferred shape are generated from the declarations in `hloom.ops`
(`builder/declared.py`); the other modules define those that broadcast, derive attributes or add several instructions.
Shapes are known during building, and every error names the line of the user's program that caused it.
"""

from __future__ import annotations

from typing import Any

from hloom.builder.communication import CommunicationMethods
from hloom.builder.control_flow import ControlFlowMethods
from hloom.builder.declared import attach, attach_late
from hloom.builder.elementwise import ElementwiseMethods
from hloom.builder.products import ProductMethods
from hloom.builder.reductions import ReductionMethods
from hloom.builder.shapes import ShapeMethods
from hloom.builder.xla_op import XlaComputation, XlaOp
from hloom.errors import close_names


class XlaBuilder(
    ElementwiseMethods, ShapeMethods, ProductMethods, ReductionMethods, ControlFlowMethods, CommunicationMethods
):
    """Builds one computation: methods add instructions, `build` returns the computation.

    Array arguments are XlaOps, or NumPy arrays and Python numbers, which become constants (numbers take the element
    type of the other operand). Computation arguments are XlaComputations, or Python functions on XlaOps, which are
    traced with the parameter shapes that the operation requires. Methods raise HloomError.

    >>> builder = hl.XlaBuilder("axpy")
    >>> x, y = builder.parameter(0, hl.f32[2], "x"), builder.parameter(1, hl.f32[2], "y")
    >>> hl.compile(builder.build(2.0 * x + y))(np.float32([1, 2]), np.float32([10, 20]))
    array([12., 24.], dtype=float32)
    """

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and attach_late(type(self), name):
            return getattr(self, name)
        raise AttributeError(f"{type(self).__name__} has no method {name}{close_names(name, dir(self))}")


attach(XlaBuilder)

__all__ = ["XlaBuilder", "XlaComputation", "XlaOp"]
