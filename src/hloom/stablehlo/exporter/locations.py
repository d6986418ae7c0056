"""Metadata of instructions as MLIR locations, `"jit(f)/add"("model.py":4:2 to :8)`, with callers if known."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from hloom.stablehlo.mlir.attribute_text import quoted

_NO_FRAME = 0


class Locations:
    """Locations of the instructions of a module; `stack_frames` are its tables (see `Module.stack_frames`)."""

    def __init__(self, stack_frames: Mapping[str, Sequence[Any]]) -> None:
        self.tables = {
            title: [_fields(str(row)) if str(row).startswith("{") else str(row) for row in rows]
            for title, rows in stack_frames.items()
        }

    def of(self, metadata: Mapping[str, Any]) -> str:
        """The MLIR location of OpMetadata; "" without a name and position."""
        position = self._call_stack(_natural_number(metadata.get("stack_frame_id"))) or _source_range(metadata)
        name = metadata.get("op_name")
        if not name:
            return position
        return f"{quoted(str(name))}({position})" if position else quoted(str(name))

    def _call_stack(self, frame_id: int) -> str:
        """The location `callsite("f"("a.py":4:2) at ..)` of a stack frame and its callers; "" for an unknown frame."""
        positions: list[str] = []
        seen: set[int] = set()
        while frame_id != _NO_FRAME and frame_id not in seen:
            seen.add(frame_id)
            frame = self._row("StackFrames", frame_id)
            position = self._frame_position(frame)
            if frame is None or not position:
                break
            positions.append(position)
            # In text, parent_frame_id is one more than in the proto: 1 means none.
            frame_id = frame.get("parent_frame_id", 1) - 1
        if not positions:
            return ""
        stack = positions.pop()
        while positions:
            stack = f"callsite({positions.pop()} at {stack})"
        return stack

    def _frame_position(self, frame: dict[str, int] | None) -> str:
        location = self._row("FileLocations", (frame or {}).get("file_location_id", 0))
        file = self._quoted_name("FileNames", (location or {}).get("file_name_id", 0))
        if location is None or not file:
            return ""
        text = _file_range(file, location)
        function = self._quoted_name("FunctionNames", location.get("function_name_id", 0))
        return f"{function}({text})" if function else text

    def _row(self, table: str, row_id: int) -> dict[str, int] | None:
        rows = self.tables.get(table, [])
        row = rows[row_id - 1] if 0 < row_id <= len(rows) else None
        return row if isinstance(row, dict) else None

    def _quoted_name(self, table: str, row_id: int) -> str:
        """A name, in quotes as the table has it."""
        rows = self.tables.get(table, [])
        row = rows[row_id - 1] if 0 < row_id <= len(rows) else ""
        return row if isinstance(row, str) else ""


def _natural_number(value: Any) -> int:
    """A number of the metadata; 0 for anything else, since HLO text may hold any value."""
    return value if isinstance(value, int) and value >= 0 else 0


def _fields(row: str) -> dict[str, int]:
    return {key: int(value) for key, value in re.findall(r"(\w+)=(-?\d{1,9})\b", row)}


def _source_range(metadata: Mapping[str, Any]) -> str:
    file = metadata.get("source_file")
    if not file:
        return ""
    names = {"source_line": "line", "source_end_line": "end_line"}
    names |= {"source_column": "column", "source_end_column": "end_column"}
    return _file_range(quoted(str(file)), {new: _natural_number(metadata.get(old)) for old, new in names.items()})


def _file_range(file: str, location: Mapping[str, int]) -> str:
    """`"a.py":4:2`, `"a.py":4:2 to :8` or `"a.py":4:2 to 5:1`."""
    line, column = location.get("line", 0), location.get("column", 0)
    end_line, end_column = location.get("end_line", 0) or line, location.get("end_column", 0) or column
    text = f"{file}:{line}:{column}"
    if (end_line, end_column) == (line, column):
        return text
    return f"{text} to :{end_column}" if end_line == line else f"{text} to {end_line}:{end_column}"
