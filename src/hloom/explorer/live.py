"""Answers to the editor of a served page: the problems of a text, its graph, and all views of it, in a child process.

Texts and files are modules in HLO, StableHLO or protos; nothing else in them is run. The child is stopped when it takes
too long.
"""

from __future__ import annotations

import json

from hloom.editor.document import Document
from hloom.errors import HloomError
from hloom.explorer.collect import collect, values_of
from hloom.explorer.graph import Json, graph_of
from hloom.faults.case import Case
from hloom.files.containers import unpacked
from hloom.files.formats import Format, content_format, module_from_content
from hloom.files.snapshot import snapshot_in
from hloom.ir import Module
from hloom.system.child import serve
from hloom.values import Value

MAX_RUN_BYTES = 1 << 28
"""Largest sum of the sizes of all arrays of a module that is run with random arguments."""
MAX_WATCHED = 300
"""Largest number of instructions of a module that is run while it is typed."""


def main(descriptor: int) -> None:
    """Answers requests until the end of the file descriptor."""
    serve(descriptor, handle)


def handle(request: bytes) -> bytes:
    """Returns the answer, as JSON, to a request: `check` or `explore` in the first line, then a text or file."""
    action, _, content = request.partition(b"\n")
    try:
        found = _checked(content) if action == b"check" else _explored(content)
    except HloomError as error:
        found = {"error": str(error)}
    return json.dumps(found, separators=(",", ":"), allow_nan=False).encode(errors="replace")


def _checked(content: bytes) -> Json:
    """The problems of a text; if there are none, its graph and the values of a run on small random arguments."""
    problems = Document(content.decode(errors="replace")).problems()
    if problems:
        return {"problems": [{"message": p.message, "line": p.line, "column": p.column} for p in problems]}
    module = module_from_content(content)
    found: Json = {"graph": graph_of(module)}
    if sum(1 for _ in module.instructions()) <= MAX_WATCHED and (arguments := _arguments(module)) is not None:
        found |= {"values": values_of(module, arguments), "note": _ran_on(module)}
    return found


def _explored(content: bytes) -> Json:
    content = unpacked(content)
    snapshot = snapshot_in(content) if content_format(content) is Format.PROTO else None
    module = snapshot.module if snapshot is not None else module_from_content(content)
    arguments = tuple(snapshot.arguments) if snapshot is not None else _arguments(module)
    note = "not run: its arrays are large" if arguments is None else _ran_on(module)
    return {"data": collect(module, arguments), "note": note}


def _ran_on(module: Module) -> str:
    return "run on random arguments" if module.entry.parameters else "run"


def _arguments(module: Module) -> tuple[Value, ...] | None:
    """Random arguments; None if the module is too large to be run."""
    if sum(i.shape.byte_size for i in module.instructions() if i.shape.is_static) > MAX_RUN_BYTES:
        return None
    return Case.random(module, 0).arguments
