"""The registry of custom-call targets: Python callables and C functions, and how they are called (spec 24)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from hloom.errors import ArgumentError, HloomError, RuleError, RunError
from hloom.ir import Instruction
from hloom.literal import Literal
from hloom.ops.attributes import CustomCallApiVersion
from hloom.ops.custom_call import CustomCall
from hloom.runtime.custom_calls import fortran
from hloom.runtime.custom_calls.fortran import RoutineCall
from hloom.runtime.custom_calls.signature import Binding, Signature, parse_attributes
from hloom.shape import Shape
from hloom.system.python_api import c_address
from hloom.system.records import record
from hloom.types import Kind
from hloom.values import TOKEN_VALUE, Array, Value


@record(slots=True)
class CustomCallSite:
    """The first argument of functions registered with `wants_site=True`: the target, the shapes and the attributes.

    `attributes` is the backend config if that is a dictionary, as typed FFI calls have: `{uplo = 76 : ui8}`.
    """

    target_name: str
    operand_shapes: tuple[Shape, ...]
    shape: Shape
    backend_config: str
    attributes: dict[str, Any]


Caller = Callable[[Instruction, tuple[Value, ...]], Value]
REGISTERED: dict[str, Caller] = {}
"""Targets that users registered; they take precedence over hloom's own."""
DECLARED: dict[str, FunctionCaller] = {}
"""Targets that hloom declares, as Python functions."""
ROUTINES: dict[str, RoutineCaller] = {}
"""Targets that are one routine of BLAS or LAPACK."""


def register_custom_call(name: str, function: Any, *, api: str = "python", wants_site: bool = False) -> None:
    """Registers a custom-call target, replacing one of the same name.

    Arguments:
        name: the target name.
        function: with api="python" a callable that takes the operands (arrays; tuples of arrays) and returns an array,
            or a tuple for a tuple result; the operands are read-only, and it may keep them. With api="c" a C function
            `void f(void* out, void** in)` (CUSTOMCALL-2), given as an address, a ctypes or cffi function, or anything
            with an `address` attribute.
        api: "python" or "c".
        wants_site: whether a Python function takes a `CustomCallSite` before the operands.

    >>> hl.register_custom_call("row_sums", lambda x: x.sum(-1))
    >>> builder = hl.XlaBuilder("f")
    >>> sums = builder.custom_call("row_sums", [builder.parameter(0, hl.f32[2, 2])], hl.f32[2])
    >>> hl.compile(builder.build(sums))(np.float32([[1, 2], [3, 4]]))
    array([3., 7.], dtype=float32)
    """
    if not isinstance(name, str) or not name:
        raise ArgumentError(f"a custom-call target has a name that is not empty, got {name!r}")
    if api == "c":
        REGISTERED[name] = _c_caller(_address_of(function))
    elif api == "python" and callable(function):
        REGISTERED[name] = HostFunctionCaller(function, wants_site)
    else:
        raise ArgumentError(f"api is 'python' with a callable, or 'c' with a function pointer, got {api!r}")


def declare_target(name: str, signature: Signature, function: Callable[..., Any]) -> None:
    """Declares one of hloom's own targets, which users may replace; `function` takes a binding and the operands."""
    DECLARED[name] = FunctionCaller(signature, function)


def declare_routine(name: str, signature: Signature, plan: Callable[[Binding], RoutineCall]) -> None:
    """Declares a target that is one routine of BLAS or LAPACK; compiled programs call it without Python."""
    ROUTINES[name] = RoutineCaller(signature, plan)


class HostFunctionCaller:
    """Calls a function that a user registered.

    The function may keep its operands, so the caller passes copies (`read_only_copy`).
    """

    def __init__(self, function: Callable[..., Any], wants_site: bool) -> None:
        self.function, self.wants_site = function, wants_site

    def __call__(self, instruction: Instruction, args: tuple[Value, ...]) -> Value:
        name = custom_call_of(instruction).target_name
        if self.wants_site:
            args = (site_of(instruction), *args)
        try:
            result = self.function(*args)
        except HloomError:
            raise
        except Exception as error:
            raise RunError(f"the custom call {name!r} raised {type(error).__name__}: {error}") from error
        return _checked(result, instruction.shape, name)


def read_only_copy(value: Value, empty: Callable[[tuple[int, ...], np.dtype[Any]], Array] = np.empty) -> Value:
    """Returns read-only copies of arrays whose memory the program overwrites or shares, in memory from `empty`."""
    if isinstance(value, tuple):
        return tuple(read_only_copy(element, empty) for element in value)
    if not isinstance(value, np.ndarray):
        return value
    array = empty(value.shape, value.dtype)
    array[...] = value
    array.flags.writeable = False
    return array


class FunctionCaller:
    """Calls one of hloom's own functions, on operands in the program's memory."""

    def __init__(self, signature: Signature, function: Callable[..., Any]) -> None:
        self.signature, self.function = signature, function

    def __call__(self, instruction: Instruction, args: tuple[Value, ...]) -> Value:
        result = self.function(binding_of(instruction, self.signature), *args)
        return _checked(result, instruction.shape, custom_call_of(instruction).target_name)


class RoutineCaller:
    """Calls a routine of BLAS or LAPACK for the interpreter."""

    def __init__(self, signature: Signature, plan: Callable[[Binding], RoutineCall]) -> None:
        self.signature, self.plan = signature, plan

    def routine_call(self, instruction: Instruction) -> RoutineCall:
        """The arguments of the routine for a custom call."""
        return self.plan(binding_of(instruction, self.signature))

    def __call__(self, instruction: Instruction, args: tuple[Value, ...]) -> Value:
        results = fortran.run(self.routine_call(instruction), args)
        shapes = instruction.shape.leaves()
        values = tuple(result.reshape(shape.dimensions) for result, shape in zip(results, shapes, strict=True))
        return values if instruction.shape.is_tuple else values[0]


def custom_call_of(instruction: Instruction) -> CustomCall:
    """The operation of an instruction that is a custom call."""
    assert isinstance(instruction.op, CustomCall)
    return instruction.op


def binding_of(instruction: Instruction, signature: Signature) -> Binding:
    """Binds a call to the target's signature; RuleError[CUSTOMCALL-7] if they do not match."""
    name = custom_call_of(instruction).target_name
    return signature.bind(name, instruction.operand_shapes, instruction.shape, instruction.backend_config)


def site_of(instruction: Instruction) -> CustomCallSite:
    """Describes a call for functions registered with `wants_site=True`."""
    config, name = instruction.backend_config, custom_call_of(instruction).target_name
    shapes = tuple(instruction.operand_shapes)
    return CustomCallSite(name, shapes, instruction.shape, config, parse_attributes(config))


def _checked(result: Any, shape: Shape, name: str) -> Value:
    """Checks that the result of a Python function has the declared shape, and returns it (CUSTOMCALL-5)."""
    if shape.is_tuple:
        if not isinstance(result, (tuple, list)) or len(result) != len(shape.elements):
            _reject_result(name, shape, type(result).__name__)
        return tuple(_checked(r, s, name) for r, s in zip(result, shape.elements, strict=True))
    if not shape.is_array:
        return TOKEN_VALUE
    is_exact = type(result) is np.ndarray and result.dtype == shape.element_type.dtype
    array = result if is_exact else _converted(result, shape, name)
    if array.ndim != shape.rank or any(
        size > bound if dynamic else size != bound
        for size, bound, dynamic in zip(array.shape, shape.dimensions, shape.dynamic_dimensions, strict=True)
    ):
        _reject_result(name, shape, f"{array.dtype}{list(array.shape)}")
    return array


def _converted(result: Any, shape: Shape, name: str) -> Array:
    """Converts a result to the declared element type: to one of its kind or of a wider one, and integers that fit."""
    try:
        given = Literal.from_value(result)
    except ArgumentError:
        _reject_result(name, shape, type(result).__name__)
    element_type = shape.element_type
    if not given.shape.is_array or _WIDTHS[given.shape.element_type.kind] > _WIDTHS[element_type.kind]:
        _reject_result(name, shape, str(given.shape))
    array: Array = given.value.astype(element_type.dtype)
    if element_type.is_integer and (array != given.value).any():
        _reject_result(name, shape, f"numbers that {element_type} does not hold")
    return array


_WIDTHS = {Kind.PRED: 0, Kind.SIGNED: 1, Kind.UNSIGNED: 1, Kind.FLOAT: 2, Kind.COMPLEX: 3}


def _reject_result(name: str, shape: Shape, got: str) -> NoReturn:
    raise RuleError("custom-call", "CUSTOMCALL-5", f"{name!r} must return {shape}, it returned {got}")


def _address_of(function: Any) -> int:
    """The address of a C function given as an integer, a ctypes or cffi function, or an object with an address."""
    if isinstance(function, int):
        return function
    if hasattr(function, "address"):
        return int(function.address)
    try:
        return c_address(function)
    except ctypes.ArgumentError:
        pass
    try:
        import cffi

        return int(cffi.FFI().cast("intptr_t", function))
    except (ImportError, TypeError):
        raise ArgumentError(f"a C function is an address or a function pointer, got {function!r}") from None


def _c_caller(address: int) -> Caller:
    """Returns a caller by the C ABI of the specification, or its variants with a status (CUSTOMCALL-2, -6)."""
    if not address:
        raise ArgumentError("a C function pointer must not be null")

    def call(instruction: Instruction, args: tuple[Value, ...]) -> Value:
        keep: list[Any] = []
        ins = [_buffer(value, shape, keep) for value, shape in zip(args, instruction.operand_shapes, strict=True)]
        pointers = (ctypes.c_void_p * max(1, len(ins)))(*ins)
        out, read = _out_buffer(instruction.shape, keep)
        if custom_call_of(instruction).api_version is CustomCallApiVersion.API_VERSION_STATUS_RETURNING_UNIFIED:
            opaque = instruction.backend_config.encode("utf-8", "surrogateescape")
            status = ctypes.create_string_buffer(64)
            function = ctypes.CFUNCTYPE(
                None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p
            )(address)
            function(out, ctypes.addressof(pointers), opaque, len(opaque), ctypes.addressof(status))
        else:
            # Functions of two arguments ignore the status pointer.
            status = ctypes.create_string_buffer(64)
            function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(address)
            function(out, ctypes.addressof(pointers), ctypes.addressof(status))
        return read()

    return call


def _buffer(value: Value, shape: Shape, keep: list[Any]) -> int:
    """The address of a value's buffer; for a tuple, that of an array of its elements' addresses (CUSTOMCALL-5)."""
    if shape.is_tuple:
        addresses = [_buffer(v, s, keep) for v, s in zip(value, shape.elements, strict=True)]
        table = (ctypes.c_void_p * max(1, len(addresses)))(*addresses)
        keep.append(table)
        return ctypes.addressof(table)
    memory = Literal(shape, value).to_linear_memory() if shape.is_array else b""
    buffer = ctypes.create_string_buffer(memory, max(1, len(memory)))
    keep.append(buffer)
    return ctypes.addressof(buffer)


def _out_buffer(shape: Shape, keep: list[Any]) -> tuple[int, Callable[[], Value]]:
    """Allocates the buffer of a result; returns its address and a function that reads the result."""
    if shape.is_tuple:
        parts = [_out_buffer(element, keep) for element in shape.elements]
        table = (ctypes.c_void_p * max(1, len(parts)))(*(address for address, _ in parts))
        keep.append(table)
        return ctypes.addressof(table), lambda: tuple(read() for _, read in parts)
    size = shape.byte_size if shape.is_array else 0
    buffer = ctypes.create_string_buffer(max(1, size))
    keep.append(buffer)

    def read() -> Value:
        return Literal.from_linear_memory(shape, buffer.raw[:size]).value if shape.is_array else TOKEN_VALUE

    return ctypes.addressof(buffer), read
