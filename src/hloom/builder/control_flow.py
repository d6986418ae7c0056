"""Builder methods for calls, loops and branches (spec 11, 12, 18, 19, 24, 116)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hloom.builder.arguments import makes, sequence, shape_of
from hloom.builder.core import BuilderCore
from hloom.builder.xla_op import Computationlike, XlaOp
from hloom.errors import ArgumentError, RuleError
from hloom.ops.operation import OPERATIONS
from hloom.shape import Shape, scalar
from hloom.types import PrimitiveType


class ControlFlowMethods(BuilderCore):
    """Methods for calls, loops and branches."""

    @makes("call")
    def call(self, computation: Computationlike, *args: Any) -> XlaOp:
        """Calls a computation (CALL-1)."""
        operands = [self._operand(arg) for arg in args]
        callee = self._callable(computation, [operand.shape for operand in operands], "callee")
        return self._add(OPERATIONS["call"](computation=callee), operands)

    @makes("call", name="name of the operation", composite_attributes="its attributes, as text", version="its version")
    def composite_call(
        self,
        computation: Computationlike,
        *args: Any,
        name: str,
        composite_attributes: str | None = None,
        version: int = 0,
    ) -> XlaOp:
        """A named operation, defined by its decomposition `computation` (COMPOSITECALL-1, -2)."""
        if not name or version < 0:
            raise RuleError("call", "COMPOSITECALL-3", f"needs a name and a version >= 0, got {name!r} and {version}")
        operands = [self._operand(arg) for arg in args]
        callee = self._callable(computation, [operand.shape for operand in operands], "decomposition")
        result = self._add(OPERATIONS["call"](computation=callee, is_composite=True), operands)
        attributes = {"composite.name": name, "composite.version": str(version)}
        if composite_attributes is not None:
            attributes["composite.attributes"] = composite_attributes
        result.instruction.frontend_attributes = attributes
        return result

    @makes("while")
    def while_(self, condition: Computationlike, body: Computationlike, init: Any) -> XlaOp:
        """Applies `body` to a value, initially `init`, while `condition` holds (WHILE-1)."""
        init = self._operand(init)
        op = OPERATIONS["while"](
            condition=self._callable(condition, [init.shape], "condition"),
            body=self._callable(body, [init.shape], "body"),
        )
        return self._add(op, (init,))

    def conditional(self, index: Any, *arguments: Any) -> XlaOp:
        """Calls one of several computations, in either form of Conditional.

        `conditional(pred, true_operand, true_computation, false_operand, false_computation)` (CONDITIONAL-1), or
        `conditional(branch_index, branch_computations, branch_operands)` (CONDITIONAL-3).
        """
        index = self._operand(index)
        if len(arguments) == 4:
            operands, branches = [arguments[0], arguments[2]], [arguments[1], arguments[3]]
            if not index.shape.compatible(scalar(PrimitiveType.PRED)):
                raise RuleError("conditional", "CONDITIONAL-2", f"pred is pred[], got {index.shape}")
        elif len(arguments) == 2:
            branches = sequence("conditional", "branch_computations", arguments[0])
            operands = sequence("conditional", "branch_operands", arguments[1])
            if not index.shape.compatible(scalar(PrimitiveType.S32)):
                raise RuleError("conditional", "CONDITIONAL-5", f"branch_index is s32[], got {index.shape}")
        else:
            raise ArgumentError(
                "conditional takes (pred, true_operand, true_computation, false_operand, false_computation) or "
                "(branch_index, branch_computations, branch_operands)"
            )
        if len(branches) != len(operands):
            raise RuleError(
                "conditional", "CONDITIONAL-5", f"got {len(branches)} computations and {len(operands)} operands"
            )
        values = [self._operand(operand) for operand in operands]
        computations = [self._callable(b, [v.shape], "branch") for b, v in zip(branches, values, strict=True)]
        return self._add(OPERATIONS["conditional"](branch_computations=computations), (index, *values))

    @makes(
        "custom-call",
        shape="shape of the result",
        has_side_effect="whether the call must be neither removed nor duplicated",
        opaque="text that the function gets",
    )
    def custom_call(
        self, target_name: str, args: Sequence[Any], shape: Shape, *, has_side_effect: bool = False, opaque: str = ""
    ) -> XlaOp:
        """Calls the function registered as `target_name` (CUSTOMCALL-1)."""
        op = OPERATIONS["custom-call"](target_name=target_name, has_effect=has_side_effect)
        result = self._add(op, self._list(args), shape_of(shape))
        result.instruction.backend_config = opaque
        return result
