"""The documents are true: the walkthrough runs, and the reference is that of the declarations."""

from __future__ import annotations

import re
import runpy

from conftest import ROOT
from hloom.ops.operation import OPERATIONS


def test_the_walkthrough_runs() -> None:
    page = (ROOT / "docs" / "walkthrough.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) >= 6
    names: dict[str, object] = {"__name__": "walkthrough"}
    try:
        for block in blocks:
            exec(compile(block, "docs/walkthrough.md", "exec"), names)
    finally:
        OPERATIONS.pop("scale", None)


def test_the_reference_is_up_to_date() -> None:
    made = runpy.run_path(str(ROOT / "tools" / "reference.py"))["reference"]()
    assert (ROOT / "docs" / "operations.md").read_text() == made, "run: python tools/reference.py"


def test_every_operation_cites_its_clauses() -> None:
    for opcode, declaration in OPERATIONS.items():
        assert re.search(r"[A-Z0-9]-\d|addition", declaration.__doc__ or ""), opcode
