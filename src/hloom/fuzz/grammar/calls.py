"""Custom calls of the targets that hloom declares: shapes and attributes are drawn from their signatures."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hloom.errors import RuleError
from hloom.fuzz.grammar.body import Body
from hloom.fuzz.grammar.draw import TYPES, Draw
from hloom.fuzz.grammar.proposals import proposal
from hloom.ir import Instruction
from hloom.ops.attributes import CustomCallApiVersion
from hloom.ops.custom_call import REFUSE_SIZES, SHARD_MARKERS, SLICE_TO_DYNAMIC, CustomCall
from hloom.ops.rules import result_shape
from hloom.runtime.custom_calls.signature import Attribute, Pattern, Signature
from hloom.runtime.custom_calls.targets import signatures
from hloom.shape import Shape
from hloom.system.records import record
from hloom.types import BY_NAME

LEFT_OUT = (*SHARD_MARKERS, REFUSE_SIZES, SLICE_TO_DYNAMIC, "AllocateBuffer")
"""Targets for partitioned programs, that refuse many operands, or whose results are not defined.

So is what Cholesky's routine leaves of a matrix that is not positive definite; whether one is, rounding may decide.
"""
TRIES = 1000
LARGEST_SIZE = 5


@record
class DrawnCall:
    """A call that fits the signature of a target."""

    target: str
    operands: tuple[Shape, ...]
    result: Shape
    config: str


@proposal(CustomCall)
def _custom_call(body: Body, declaration: type[CustomCall]) -> Instruction:
    declared = {
        k: own for k, own in signatures().items() if k not in LEFT_OUT and not k.endswith(("potrf_ffi", "cholesky"))
    }
    target = body.draw.pick(sorted(declared))
    drawn = draw_call(body.draw, target, declared[target])
    version = CustomCallApiVersion.API_VERSION_ORIGINAL
    if target.endswith("_ffi"):
        version = CustomCallApiVersion.API_VERSION_TYPED_FFI
    operands = [body.want(shape) for shape in drawn.operands]
    made = body.add(CustomCall(target_name=target, api_version=version), *operands, shape=drawn.result)
    made.backend_config = drawn.config
    body.opened(made)
    return made


def draw_call(draw: Draw, target: str, signature: Signature) -> DrawnCall:
    """Returns a call that fits the signature of a target. Raises RuleError[CUSTOMCALL-7] if none of many does."""
    for _ in range(TRIES):
        call = _drawn(draw, target, signature)
        try:
            signature.bind(target, call.operands, call.result, call.config)
        except RuleError:
            continue
        return call
    raise RuleError("custom-call", "CUSTOMCALL-7", f"no call of {target!r} was found that fits {signature}")


def _drawn(draw: Draw, target: str, signature: Signature) -> DrawnCall:
    """Returns a call with sizes that bind to the names of the signature, some of them equal."""
    attributes = {name: _draw_value(draw, each) for name, each in signature.attributes.items()}
    names = sorted(set(re.findall(r"\b[a-z]\b", signature.text)) - set(signature.where))
    same = draw.between(0, LARGEST_SIZE) if draw.chance(0.5) else None
    sizes: dict[str, Any] = {name: draw.between(0, LARGEST_SIZE) if same is None else same for name in names}
    for name, expression in signature.where.items():
        sizes[name] = eval(expression, {}, {**sizes, **attributes})
    batch = tuple(draw.between(0, 3) for _ in range(draw.below(3)))
    element_type = draw.pick(signature.types or TYPES)
    whole = Shape.array(element_type, batch)
    operands, results = (
        [
            _shape(pattern, sizes, whole)
            for pattern in patterns
            for _ in range({None: 1, "rank": len(batch), "any": draw.below(3)}[pattern.repeat])
        ]
        for patterns in (signature.operands, signature.results)
    )
    result = result_shape(results)
    return DrawnCall(target, tuple(operands), result, _config(signature, attributes))


def _shape(pattern: Pattern, sizes: Mapping[str, Any], whole: Shape) -> Shape:
    """Returns the shape of an array of a signature: `whole`, or one with its element type and these sizes."""
    if pattern.sizes is None:
        return whole
    own = whole.element_type
    types = {"T": own, "_": own, "real(T)": own.real, "complex(T)": own.complex or own}
    dimensions: list[int] = []
    for size in pattern.sizes:
        dimensions += whole.dimensions if size == "*" else [max(0, eval(size, {}, dict(sizes)))]
    return Shape.array(types.get(pattern.type) or BY_NAME[pattern.type], dimensions)


def _draw_value(draw: Draw, attribute: Attribute) -> Any:
    options = attribute.options
    if isinstance(options, bool):
        return draw.chance(0.5)
    if isinstance(options, str):
        return draw.pick(options)
    return draw.between(0, LARGEST_SIZE) if isinstance(options, range) else 1e-6


def _config(signature: Signature, attributes: Mapping[str, Any]) -> str:
    if signature.positional:
        return ",".join(str(int(value) if isinstance(value, bool) else value) for value in attributes.values())
    entries = [f"{name} = {_written(value)}" for name, value in attributes.items()]
    return "{" + ", ".join(entries) + "}" if entries else ""


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{ord(value)} : ui8" if isinstance(value, str) else f"{value} : i32"
