"""Lines are traced on all threads that work for this one, and only within the context."""

from __future__ import annotations

import hloom as hl
from hloom.fuzz.lines import Lines

TEXT = "ENTRY e { x = f32[2] parameter(0)\n ROOT r = f32[2] add(x, x) }"


def test_lines_of_compilations_are_seen_though_another_thread_compiles() -> None:
    lines = Lines()
    with lines.traced():
        hl.compile(hl.parse(TEXT))
    assert {"text/parser.py", "backends/cpu/compiler.py"} <= {*lines.as_lists()}


def test_no_lines_are_seen_outside_of_the_context() -> None:
    lines = Lines()
    with lines.traced():
        pass
    before = lines.as_lists()
    hl.parse(TEXT)
    assert lines.as_lists() == before
