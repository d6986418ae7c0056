"""Records in files of JSON lines, to which an interrupted run appends when it is resumed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


def read(path: Path, kind: Callable[..., T], key: str) -> dict[str, T]:
    """Reads the records of a file, by the field `key`; of several records with one key the last counts."""
    if not path.exists():
        return {}
    entries = (json.loads(line) for line in path.read_text().splitlines())
    return {entry[key]: kind(**entry) for entry in entries}


def append(path: Path, record: Any) -> None:
    """Appends a record, a data class, to a file; creates the file and its folders if necessary."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(asdict(record)) + "\n")
