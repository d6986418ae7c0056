"""Layering: imports point to lower layers, and no two files import each other, directly or not.

All imports count: those of whole modules, those for types alone, and those inside functions.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from conftest import ROOT
from prose import statements

SOURCE = ROOT / "src" / "hloom"

UPWARDS = {
    ("types.py", "shape.py"): "f32[2, 3], an element type with sizes, is a Shape",
    ("ops/context.py", "ir.py"): "an operation holds the computations it calls, whose instructions hold operations",
    ("ir.py", "text/__init__.py"): "Module.to_text: the graph shows itself",
    ("layout.py", "shape.py"): "a layout may have the physical shape of an array",
    ("shape.py", "display.py"): "in notebooks a shape shows where its elements lie",
}
"""The upward imports, and their reasons. None of them happens while modules are loaded."""


def layers() -> dict[str, int]:
    """Returns the layer of each package and file that docs/design.md lists, 0 for the highest."""
    listing = (ROOT / "docs" / "design.md").read_text().split("    hloom/\n")[1].split("\n\n")[0]
    found: dict[str, int] = {}
    path: list[tuple[int, str]] = []
    for number, line in enumerate(listing.split("\n")):
        indent = len(line) - len(line.lstrip())
        names = [name for name in re.split(r"  +", line.strip())[0].split() if re.fullmatch(r"[\w/*]+(/|\.py)", name)]
        assert names, f"docs/design.md: {line!r} names no package or file"
        path = [(i, name) for i, name in path if i < indent]
        for name in names:
            found["".join(n for _, n in path) + name.removesuffix("*.py")] = number
        path.append((indent, names[0]))
    return found


LAYERS = layers()


def layer(file: str) -> int | None:
    """Returns the layer of a file: that of the longest matching path in LAYERS."""
    fitting = [name for name in LAYERS if file == name or (name.endswith("/") and file.startswith(name))]
    return LAYERS[max(fitting, key=len)] if fitting else None


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


@functools.cache
def file_of(module: str) -> str | None:
    """The file of a module of hloom, by its dotted name."""
    path = SOURCE.parent / module.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return name_of(file) if file.is_file() else None


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """The files of hloom that a file imports, and the lines."""
    for node in statements(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "hloom":
            assert node.level == 0
            for alias in node.names:
                target = file_of(f"{node.module}.{alias.name}") or file_of(str(node.module))
                assert target is not None, f"{path}:{node.lineno} imports what is not there"
                yield target, node.lineno
        elif isinstance(node, ast.Import):
            yield from ((str(file_of(a.name)), node.lineno) for a in node.names if a.name.split(".")[0] == "hloom")


@functools.cache
def arrows() -> dict[tuple[str, str], int]:
    return {
        (name_of(path), target): line
        for path in sorted(SOURCE.rglob("*.py"))
        for target, line in imports(path)
        if target != name_of(path)
    }


def test_every_file_is_in_a_layer_and_every_layer_has_files() -> None:
    files = [name_of(path) for path in SOURCE.rglob("*.py")]
    homeless = [file for file in files if layer(file) is None]
    assert sorted(homeless) == ["__init__.py", "__main__.py", "backends/__init__.py"]
    assert {layer(file) for file in files} - {None} == set(LAYERS.values())


def test_imports_point_to_lower_layers() -> None:
    wrong = []
    for (file, target), line in arrows().items():
        own, other = layer(file), layer(target)
        if own is not None and other is not None and other < own and (file, target) not in UPWARDS:
            wrong.append(f"{file}:{line} imports {target} from above")
    assert not wrong, "\n".join(wrong)


def test_no_files_import_each_other() -> None:
    graph: dict[str, set[str]] = {}
    for file, target in arrows():
        if (file, target) not in UPWARDS:
            graph.setdefault(file, set()).add(target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError("files import each other: " + " -> ".join(error.args[1])) from None


def test_exceptions_are_needed() -> None:
    for arrow in UPWARDS:
        assert arrow in arrows(), f"{arrow} is an exception for nothing"
