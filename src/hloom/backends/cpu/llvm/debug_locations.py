"""Which instruction of HLO each line of LLVM IR, and of assembly, is for.

A function's lines are tied by names, one a line, empty where there is none. They go through LLVM's passes and code
generator as the line numbers of debug information, which change no code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

DebugLocations = Mapping[str, Sequence[str]]
"""Function -> for each line of its text the name of an instruction, or nothing."""

MIN_METADATA = 100_000
"""The number of the first piece of metadata: texts have some of their own."""
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
    """The functions of a module, lines followed by the instruction that they are for, as a comment."""
    found: dict[str, list[str]] = {}
    for function, line, name in _lines(text, locations):
        if function:
            found.setdefault(function, []).append(_commented(line, name, ";"))
    return {function: "\n".join(lines) for function, lines in found.items()}


def with_debug_locations(text: str, locations: DebugLocations) -> tuple[str, list[str]]:
    """The module with a location at each instruction, and the names that the line numbers stand for, from 1 on."""
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
    """The functions of the assembly of a module `with_debug_locations`, without directives, tied as those of IR are."""
    found = {}
    for match in re.finditer(r"^(\w[\w.]*):[^\n]*\n(.*?)^\.Lfunc_end\d+:", text, re.M | re.S):
        lines, name = [f"{match[1]}:"], ""
        for line in match[2].split("\n"):
            location = _LOCATION.match(line)
            if location is not None:
                number = int(location[1])
                name = names[number - 1] if number else ""
            elif _NO_CODE.match(line) is None:
                lines.append(line if line[0] == "." else _commented(line, name, "#"))
        found[match[1]] = "\n".join(lines)
    return found


def _lines(text: str, locations: DebugLocations) -> Iterator[tuple[str, str, str]]:
    """The lines of a module: the function that each is in, the line, the name that it is tied to."""
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
    """The names of a function's lines. Merged with others it loads constants first; a call of a merged one is short."""
    head = 2
    if length < len(names) or not names:
        return ()
    return [*names[:head], *[""] * (length - len(names)), *names[head:]]


def _commented(line: str, name: str, mark: str) -> str:
    return f"{line.expandtabs():60} {mark} %{name}" if name else line
