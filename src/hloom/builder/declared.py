"""Builder methods generated from the declarations in `hloom.ops`: operands and attributes are the arguments."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from hloom.builder.arguments import caller, element_type_of, with_arguments
from hloom.builder.xla_op import XlaOp
from hloom.errors import ArgumentError, HloomError
from hloom.ops.attributes import ComparisonDirection
from hloom.ops.elementwise_binary import Binary
from hloom.ops.elementwise_unary import Unary
from hloom.ops.operation import OPERATIONS, Operation
from hloom.ops.plugins import load_installed


def _method(declaration: type[Operation]) -> Callable[..., XlaOp]:
    """Returns the method of a declaration: element-wise binary operations broadcast, others take operands and
    attributes.
    """
    if issubclass(declaration, Unary):
        return _unary_method(declaration.opcode)
    if issubclass(declaration, Binary):
        return _binary_method(declaration.opcode)
    return _declared_method(declaration)


def _unary_method(opcode: str) -> Callable[..., XlaOp]:
    def method(self: Any, operand: Any) -> XlaOp:
        return self._add(OPERATIONS[opcode](), (self._operand(operand),))

    return method


def _binary_method(opcode: str) -> Callable[..., XlaOp]:
    def method(self: Any, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = None) -> XlaOp:
        return self._binary(opcode, lhs, rhs, broadcast_dimensions)

    return method


def _compare_method(direction: str, total_order: bool) -> Callable[..., XlaOp]:
    def method(self: Any, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = None) -> XlaOp:
        return self._compare(direction, lhs, rhs, broadcast_dimensions, total_order)

    doc = f"Compares: lhs {direction} rhs, element by element{' in total order' if total_order else ''} (COMPARE-1)."
    method.__doc__ = _with_broadcast(doc, "compare")
    return method


def _declared_method(declaration: type[Operation]) -> Callable[..., XlaOp]:
    """Returns a method with the operands, then the attributes, of a declaration as arguments."""
    names = [operand.lstrip("*") for operand in declaration.operands]
    starred = [operand.startswith("*") for operand in declaration.operands]
    only_starred = len(names) == 1 and starred[0]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter("self", kind)]
    for name in names:
        parameters.append(inspect.Parameter(name, inspect.Parameter.VAR_POSITIONAL if only_starred else kind))
    for field in declaration.fields:
        default = inspect.Parameter.empty if field.required else field.default
        parameters.append(
            inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY if only_starred else kind, default=default)
        )
    required_first = sorted(parameters, key=lambda p: (p.kind, p.default is not inspect.Parameter.empty))
    signature = inspect.Signature(required_first)

    def method(self: Any, *args: Any, **kwargs: Any) -> XlaOp:
        try:
            values = signature.bind(self, *args, **kwargs).arguments
        except TypeError as error:
            raise ArgumentError(f"{declaration.opcode}{signature}: {error}") from None
        values.pop("self")
        operands: list[XlaOp] = []
        element_type = element_type_of(*(values.get(name) for name in names))
        for name, star in zip(names, starred, strict=True):
            value = values.pop(name, ())
            operands += self._list(value) if star else [self._operand(value, element_type)]
        return self._add(declaration(**values), operands)

    method.__signature__ = signature  # type: ignore[attr-defined]
    return method


def _documentation(declaration: type[Operation]) -> str:
    """The docstring of the method of a declaration."""
    if issubclass(declaration, Binary):
        return _with_broadcast(declaration.__doc__, declaration.opcode)
    docs = declaration.argument_docs()
    return with_arguments(declaration.__doc__, docs, docs)


def _with_broadcast(doc: str | None, opcode: str) -> str:
    """The docstring of a method that broadcasts its two operands."""
    docs = OPERATIONS[opcode].argument_docs() | {
        "broadcast_dimensions": "dimension of the result for each dimension of the operand of lower rank (BC-9)"
    }
    return with_arguments(doc, ("lhs", "rhs", "broadcast_dimensions"), docs)


def attach(builder: type[Any]) -> None:
    """Adds the generated methods to the builder class, and source locations to the errors of all methods."""
    made: dict[str, tuple[Callable[..., XlaOp], str | None]] = {}
    for declaration in OPERATIONS.values():
        if declaration.builder_name:
            made[declaration.builder_name] = (_method(declaration), _documentation(declaration))
    for direction in ComparisonDirection:
        for suffix, total in (("", False), ("_total_order", True)):
            method = _compare_method(direction.value, total)
            made[direction.value.lower() + suffix] = (method, method.__doc__)
    for name, (method, doc) in made.items():
        setattr(builder, name, _named(method, name, doc))
    for name in dir(builder):
        method = getattr(builder, name)
        if not name.startswith("_") and inspect.isfunction(method):
            setattr(builder, name, _locating(method))


def attach_late(builder: type[Any], name: str) -> bool:
    """Adds the method `name` of an operation that was declared after the builder; returns whether there is one."""
    load_installed()
    found = [declaration for declaration in OPERATIONS.values() if declaration.builder_name == name]
    for declaration in found:
        setattr(builder, name, _locating(_named(_method(declaration), name, _documentation(declaration))))
    return bool(found)


def _named(method: Callable[..., XlaOp], name: str, doc: str | None) -> Callable[..., XlaOp]:
    method.__name__, method.__qualname__, method.__doc__ = name, f"XlaBuilder.{name}", doc
    return method


def _locating(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a method so that its errors name the line of the user's program that called it."""

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except HloomError as error:
            raise error.at(caller()) from None

    return call
