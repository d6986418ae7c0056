"""Signatures of public functions as text."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import hloom as hl

_EMPTY = inspect.Parameter.empty


def builder_signature(method: str) -> str:
    """Returns the signature of a method of `XlaBuilder`, without `self`."""
    return signature(getattr(hl.XlaBuilder, method), skip_first=True)


def signature(function: Callable[..., Any], skip_first: bool = False) -> str:
    """Returns a signature in which `Any` is left out and defaults are readable."""
    found = inspect.signature(function)
    parameters = list(found.parameters.values())[1 if skip_first else 0 :]
    shown = [
        parameter.replace(annotation=_annotation(parameter), default=_default(parameter)) for parameter in parameters
    ]
    text = str(found.replace(parameters=shown, return_annotation=_EMPTY))
    result = found.return_annotation
    arrow = "" if result is _EMPTY else f" -> {_text(result)}"
    return text + arrow


class _Shown:
    """An annotation or default that shows as a text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _annotation(parameter: inspect.Parameter) -> Any:
    text = _text(parameter.annotation)
    return _EMPTY if parameter.annotation is _EMPTY or text == "Any" else _Shown(text)


def _default(parameter: inspect.Parameter) -> Any:
    value = parameter.default
    if value is _EMPTY or value is None or isinstance(value, (int, float, str, bool, tuple)):
        return value
    return _Shown(str(getattr(value, "name", "()" if hasattr(value, "groups") else "None")))


def _text(annotation: Any) -> str:
    if isinstance(annotation, str):
        return re.sub(r"\b(?:\w+\.)+(?=\w)", "", annotation)
    return getattr(annotation, "__name__", str(annotation))
