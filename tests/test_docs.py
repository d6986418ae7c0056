"""The documents are true: the walkthrough runs, the reference is that of the declarations, the layers are layers."""

from __future__ import annotations

import ast
import re
import runpy
from pathlib import Path

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


def test_each_layer_imports_only_from_those_below_it() -> None:
    house = (ROOT / "docs" / "design.md").read_text().split("    hloom/\n")[1].split("\n\n")[0]
    lines = re.findall(r"^ {6}(\S.*)", house, re.MULTILINE)
    floors = [[n.rstrip("/") for n in re.findall(r"[\w/]+(?:/|\.py)(?= |$)", line)] for line in lines]
    level = {name: number for number, names in enumerate(filter(None, floors)) for name in names}
    source = ROOT / "src" / "hloom"

    def floor(path: Path) -> int | None:
        parts = path.relative_to(source).with_suffix(".py" if path.suffix else "").parts
        return next((level[name] for k in (2, 1) if (name := "/".join(parts[:k])) in level), None)

    seen = set()
    for path in source.rglob("*.py"):
        own = floor(path)
        if own is None:
            assert path.parent in (source, source / "backends"), f"{path} is on no floor"
            continue
        seen.add(own)
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("hloom."):
                target = source / node.module.removeprefix("hloom.").replace(".", "/")
                below = floor(target if target.is_dir() else target.with_suffix(".py"))
                assert below is None or below >= own, f"{path}:{node.lineno} imports from above"
    assert seen == set(level.values())
