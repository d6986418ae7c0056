"""Columns of a user's own values for instructions, by which the page colours boxes."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from hloom.errors import ArgumentError
from hloom.explorer.graph import Json
from hloom.files.formats import read_file

Columns = dict[str, dict[str, float | str]]
"""Numbers or texts by the names of instructions, by titles."""
MAX_NAMED = 3


def columns_of(data: Mapping[str, Any] | str | PathLike[str]) -> Columns:
    """Returns the columns of an object, or of a file of JSON.

    It has values by the names of instructions, or such objects by titles. A single column without a title has that of
    the file, or "data". Raises ArgumentError.
    """
    if isinstance(data, Mapping):
        return _columns(data, "data", "data")
    try:
        found = json.loads(read_file(data))
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"{data} is no JSON: {error}") from None
    return _columns(found, Path(data).stem, str(data))


def _columns(found: Any, title: str, source: str) -> Columns:
    is_titled = isinstance(found, Mapping) and any(isinstance(value, Mapping) for value in found.values())
    titled = found if is_titled else {title: found}
    return {str(name): _column(column, source) for name, column in titled.items()}


def _column(column: Any, source: str) -> dict[str, float | str]:
    if not isinstance(column, Mapping) or not column:
        raise ArgumentError(
            f'{source} is no object of numbers or texts by the names of instructions, such as {{"dot.3": 1.5}}, '
            "and no object of such objects by titles"
        )
    return {str(name).removeprefix("%"): _value(value, name, source) for name, value in column.items()}


def _value(value: Any, name: str, source: str) -> float | str:
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
    raise ArgumentError(
        f"{source} gives %{name.removeprefix('%')} the value {value!r}: a finite number or a text is needed"
    )


def check_names(columns: Columns, data: Json) -> None:
    """Raises ArgumentError for names that no instruction of the page has, with those that are close."""
    sides = [data, data["other"]] if "other" in data else [data]
    graphs = [side[which] for side in sides for which in ("given", "optimized")]
    known = {each["name"] for graph in graphs for owner in graph["computations"] for each in owner["instructions"]}
    unknown = list(dict.fromkeys(name for column in columns.values() for name in column if name not in known))
    if not unknown:
        return
    described = [_described(name, sorted(known)) for name in unknown[:MAX_NAMED]]
    more = f"; and {len(unknown) - MAX_NAMED} others" if len(unknown) > MAX_NAMED else ""
    has = "name is no instruction's" if len(unknown) == 1 else "names are no instructions'"
    raise ArgumentError(f"{len(unknown)} {has}, as given or optimised: {'; '.join(described)}{more}")


def _described(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, MAX_NAMED, 0.5) or known[:MAX_NAMED]
    return f"%{name} (there are {', '.join(f'%{each}' for each in close)})"
