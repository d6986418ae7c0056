"""Plugins: passes and rewrite rules from files, and from packages with an entry point in the group `hloom.passes`.

    [project.entry-points."hloom.passes"]
    my-rules = "my_package.rules"      # a module, a pass, or a rule

Pass classes (with `name` and `run`) and rules defined at the top level of a file or module are registered by `name`.
Operations that a file declares register themselves.
"""

from __future__ import annotations

import functools
import inspect
import runpy
import traceback
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from hloom.errors import ArgumentError
from hloom.ops.operation import OPERATIONS
from hloom.passes.rewrite import Rule

GROUP = "hloom.passes"
"""The group of entry points."""

FOUND: dict[str, Any] = {}
"""Registered pass classes, and rules, which are passes themselves, by name."""


def load_extensions(path: str) -> list[str]:
    """Runs a Python file and registers the passes, rules and operations that it defines; returns their names.

    Raises ArgumentError if the file cannot be read, raises an exception, or defines none.
    """
    known = set(OPERATIONS)
    try:
        values = runpy.run_path(path)
    except OSError as error:
        raise ArgumentError(f"cannot read {path}: {error.strerror}") from None
    except Exception as error:
        raise ArgumentError(f"{path} fails: {type(error).__name__}: {error}").at(_line_of(path, error)) from error
    names = [*_register(values.values(), "<run_path>"), *(OPERATIONS.keys() - known)]
    if not names:
        raise ArgumentError(
            f"{path} defines no pass (a class with `name` and `run`), no rule (@hloom.rewrite) and no Operation"
        )
    return names


def _line_of(path: str, error: Exception) -> str:
    """The last line of a file that an exception passed."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    number = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    return path if number is None else f"{path}:{number}"


@functools.cache
def installed() -> dict[str, Any]:
    """Registers the passes and rules of installed packages; returns all registered ones by name.

    Raises ArgumentError if an entry point does not load.
    """
    from importlib.metadata import entry_points  # slow to import, and rarely needed

    for point in entry_points(group=GROUP):
        try:
            value = point.load()
        except Exception as error:
            raise ArgumentError(f"the entry point {point.name} of {GROUP} does not load: {error}") from error
        _register(vars(value).values() if isinstance(value, ModuleType) else [value], getattr(value, "__name__", ""))
    return FOUND


def _register(values: Iterable[Any], module: str) -> list[str]:
    """Registers the rules and pass classes among `values`; returns their names.

    Classes that were imported into the module from another one are left out.
    """
    names = []
    for value in values:
        is_pass = inspect.isclass(value) and isinstance(getattr(value, "name", None), str) and hasattr(value, "run")
        if isinstance(value, Rule) or (is_pass and value.__module__ in (module, "")):
            FOUND[value.name] = value
            names.append(value.name)
    return names
