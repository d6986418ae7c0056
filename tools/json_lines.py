"""Records as lines of JSON in a file, which a run goes on writing where the last one ended."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


def read(path: Path, kind: Callable[..., T], key: str) -> dict[str, T]:
    """The records in a file, by one of their fields; of several with the same one the last counts."""
    if not path.exists():
        return {}
    entries = (json.loads(line) for line in path.read_text().splitlines())
    return {entry[key]: kind(**entry) for entry in entries}


def append(path: Path, record: Any) -> None:
    """Adds a record, a data class, at the end of a file; makes the file and its folders where there are none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(asdict(record)) + "\n")
