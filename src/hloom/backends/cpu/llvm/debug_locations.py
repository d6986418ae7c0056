"""Debug locations: which HLO instruction each line of LLVM IR and of assembly is for.

A function has a list of instruction names, one for each line of its text, empty for lines of no instruction. They pass
through LLVM as line numbers of debug information, which does not change the code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

DebugLocations = Mapping[str, Sequence[str]]
"""Names of instructions, or "", for each line of a function's text, by the function's name."""

MIN_METADATA = 100_000
"""First metadata id; texts use some smaller ones."""
MERGED = ".merged"
_DEFINED = re.compile(r"define [^@]*@([\w.]+)\(")
_LOCATION = re.compile(r"\s+\.loc\s+\d+\s+(\d+)")
_NO_CODE = re.compile(r"\s+\.(?!loc\b)|\s*$|\.L(tmp|func_begin)\d+:")
_HEAD = f"""!llvm.dbg.cu = !{{!{MIN_METADATA}}}
!llvm.module.flags = !{{!{MIN_METADATA + 1}}}
!{MIN_METADATA} = distinct !DICompileUnit(language: DW_LANG_C, file: !{MIN_METADATA + 2}, emissionKind: LineTablesOnly)
!{MIN_METADATA + 1} = !{{i32 2, !"Debug Info Version", i32 3}}
!{MIN_METADATA + 2} = !DIFile(filename: "module", directory: "")
!{MIN_METADATA + 3} = !DISubroutineType(types: !{{}})"""


def ir_functions(text: str, locations: DebugLocations) -> dict[str, str]:
    """Returns the functions of a module, with the instruction that each line is for as a comment."""
    functions: dict[str, list[str]] = {}
    for function, line, name in _lines(text, locations):
        if function:
            functions.setdefault(function, []).append(_commented(line, name, ";"))
    return {function: "\n".join(lines) for function, lines in functions.items()}


def with_debug_locations(text: str, locations: DebugLocations) -> tuple[str, list[str]]:
    """Returns the module with debug locations, and the names that line numbers stand for, starting with line 1."""
    names: dict[str, int] = {"": 1}
    lines, metadata = [], [_HEAD]
    location_ids: dict[tuple[int, int], int] = {}
    free, scope = MIN_METADATA + 4, 0
    for function, line, name in _lines(text, locations):
        if _DEFINED.match(line):
            scope, free = free, free + 1
            metadata.append(
                f'!{scope} = distinct !DISubprogram(name: "{function}", file: !{MIN_METADATA + 2}, line: 1, '
                f"type: !{MIN_METADATA + 3}, unit: !{MIN_METADATA}, spFlags: DISPFlagDefinition)"
            )
            line = f"{line.removesuffix('{')}!dbg !{scope} {{"
        elif function and line.startswith("  "):
            number = names.setdefault(name, len(names) + 1)
            if (scope, number) not in location_ids:
                location_ids[scope, number], free = free, free + 1
                metadata.append(f"!{free - 1} = !DILocation(line: {number}, scope: !{scope})")
            line = f"{line}, !dbg !{location_ids[scope, number]}"
        lines.append(line)
    return "\n".join([*lines, *metadata]), list(names)


def assembly_functions(text: str, names: Sequence[str]) -> dict[str, str]:
    """Returns the functions of a module's assembly, without directives, with instructions as comments.

    `names` come from `with_debug_locations`.
    """
    functions = {}
    for match in re.finditer(r"^(\w[\w.]*):[^\n]*\n(.*?)^\.Lfunc_end\d+:", text, re.M | re.S):
        lines, name = [f"{match[1]}:"], ""
        for line in match[2].split("\n"):
            location = _LOCATION.match(line)
            if location is not None:
                number = int(location[1])
                name = names[number - 1] if number else ""
            elif _NO_CODE.match(line) is None:
                lines.append(line if line[0] == "." else _commented(line, name, "#"))
        functions[match[1]] = "\n".join(lines)
    return functions


def _lines(text: str, locations: DebugLocations) -> Iterator[tuple[str, str, str]]:
    """Yields the lines of a module, each with its function and the name of its instruction."""
    function = ""
    names_of_lines: Iterator[str] = iter(())
    body = text.split("\n")
    for k, line in enumerate(body):
        match = _DEFINED.match(line)
        if match is not None:
            function = match[1]
            names_of_lines = iter(_align(locations.get(function.removesuffix(MERGED), ()), body.index("}", k) + 1 - k))
        yield function, line, next(names_of_lines, "")
        if line == "}":
            function = ""


def _align(names: Sequence[str], length: int) -> Sequence[str]:
    """Aligns names with the lines of a function that was merged: loads of constants come first, and have no name.

    Returns nothing for a function that has become a call of the merged one.
    """
    head = 2
    if length < len(names) or not names:
        return ()
    return [*names[:head], *[""] * (length - len(names)), *names[head:]]


def _commented(line: str, name: str, mark: str) -> str:
    return f"{line.expandtabs():60} {mark} %{name}" if name else line
