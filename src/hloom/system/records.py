"""Records: immutable data classes that are quick to create, since each process creates hundreds of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar, cast, dataclass_transform, overload

_Class = TypeVar("_Class", bound=type[Any])


@overload
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: _Class, /) -> _Class: ...


@overload
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(*, slots: bool = False, eq: bool = True) -> Callable[[_Class], _Class]: ...


def record(cls: Any = None, /, *, slots: bool = False, eq: bool = True) -> Any:
    """Makes a class an immutable data class that is compared and hashed by its fields, or without `eq` by identity.

    Type checkers reject assignments to fields; at run time nothing does. `dataclass(frozen=True)` compiles six methods
    of each class from text; of a record only the constructor is compiled, when it is first called: many never are.
    """
    return (lambda cls: _record(cls, slots, eq)) if cls is None else _record(cls, slots, eq)


def _record(cls: Any, slots: bool, eq: bool) -> Any:
    own = {name for name in ("__init__", "__eq__", "__hash__", "__repr__") if name in vars(cls)}
    cls.__doc__ = cls.__doc__ or ""  # or dataclass asks `inspect` for the constructor's signature
    cls = dataclass(cls, init=False, eq=False, repr=False, slots=slots)

    def construct(self: object, *args: Any, **named: Any) -> None:
        cls.__init__ = _constructor(cls)
        cls.__init__(self, *args, **named)

    methods = _comparisons(cls) if eq and "__eq__" not in own else {}
    for name, method in {**methods, "__init__": construct, "__repr__": _repr}.items():
        if name not in own:
            setattr(cls, name, method)
    return cls


def _constructor(cls: Any) -> Callable[..., None]:
    """Compiles a constructor that sets the fields of a class."""
    scope: dict[str, Any] = {"MISSING": MISSING, "_fields": {f.name: f for f in fields(cls)}}
    parameters = ["self"] + [f.name + _default(f) for f in fields(cls) if f.init]
    lines = [f"self.{f.name} = {_value(f)}" for f in fields(cls) if f.init or f.default_factory is not MISSING]
    lines.append("self.__post_init__()" if hasattr(cls, "__post_init__") else "pass")
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(lines), scope)
    scope["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"  # which errors name
    return cast("Callable[..., None]", scope["__init__"])


def _default(f: Field[Any]) -> str:
    return "" if f.default is f.default_factory else f"=_fields[{f.name!r}].default"


def _value(f: Field[Any]) -> str:
    if f.default_factory is MISSING:
        return f.name
    made = f"_fields[{f.name!r}].default_factory()"
    return f"{made} if {f.name} is MISSING else {f.name}" if f.init else made


def _comparisons(cls: Any) -> dict[str, Any]:
    """Returns the methods that compare and hash the fields of a class."""
    compared = [f.name for f in fields(cls) if f.compare]
    key = attrgetter(*compared) if compared else lambda self: ()

    def equal(self: object, other: object) -> bool:
        return bool(key(self) == key(other)) if self.__class__ is other.__class__ else NotImplemented

    return {"__eq__": equal, "__hash__": lambda self: hash(key(self))}


def _repr(self: Any) -> str:
    shown = (f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"
