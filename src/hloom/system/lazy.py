"""Properties that are computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

R = TypeVar("R")


class cached_property(Generic[R]):
    """Decorator for a method that is called once for each object, whose result is an attribute from then on.

    Two threads may both call it. Until Python 3.12 that of `functools` has a lock for all objects, which a forked child
    finds held for ever if another thread computes a value meanwhile.
    """

    def __init__(self, function: Callable[[Any], R]) -> None:
        self.function = function
        self.__doc__ = function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> cached_property[R]: ...

    @overload
    def __get__(self, instance: object, owner: type | None = None) -> R: ...

    def __get__(self, instance: object, owner: type | None = None) -> cached_property[R] | R:
        if instance is None:
            return self
        value = instance.__dict__[self.name] = self.function(instance)
        return value
