"""Records: immutable data classes that are quick to create, since each process creates hundreds of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform, overload

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
    of each class from text, in four times the time of a record, whose constructor alone is compiled.
    """
    return (lambda cls: _record(cls, slots, eq)) if cls is None else _record(cls, slots, eq)


def _record(cls: Any, slots: bool, eq: bool) -> Any:
    own = {name for name in ("__eq__", "__hash__", "__repr__") if name in vars(cls)}
    cls.__doc__ = cls.__doc__ or ""  # or dataclass asks `inspect` for the constructor's signature
    cls = dataclass(cls, eq=False, repr=False, slots=slots)
    methods = _comparisons(cls) if eq and "__eq__" not in own else {}
    for name, method in {**methods, "__repr__": _repr}.items():
        if name not in own:
            setattr(cls, name, method)
    return cls


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
