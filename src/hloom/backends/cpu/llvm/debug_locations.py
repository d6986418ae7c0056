"""Debug locations: which HLO instruction each line of LLVM IR and of assembly is for.

An instruction of a function may have the name of an instruction of HLO. These names pass through LLVM as line numbers
of debug information, which does not change the code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from hloom.lir.function import ATTRIBUTE_GROUPS, Function, LirModule

MIN_METADATA = 100_000
"""First metadata id; texts use some smaller ones."""
_LOCATION = re.compile(r"\s+\.loc\s+\d+\s+(\d+)")
_NO_CODE = re.compile(r"\s+\.(?!loc\b)|\s*$|\.L(tmp|func_begin)\d+:")
_HEAD = f"""!llvm.dbg.cu = !{{!{MIN_METADATA}}}
!llvm.module.flags = !{{!{MIN_METADATA + 1}}}
!{MIN_METADATA} = distinct !DICompileUnit(language: DW_LANG_C, file: !{MIN_METADATA + 2}, emissionKind: LineTablesOnly)
!{MIN_METADATA + 1} = !{{i32 2, !"Debug Info Version", i32 3}}
!{MIN_METADATA + 2} = !DIFile(filename: "module", directory: "")
!{MIN_METADATA + 3} = !DISubroutineType(types: !{{}})"""


def ir_functions(module: LirModule) -> dict[str, str]:
    """Returns the functions of a module, with the instruction that each line is for as a comment."""
    return {
        function.name: "\n".join([_commented(line, name, ";") for line, name in _lines(function)])
        for function in module.functions
    }


def with_debug_locations(module: LirModule) -> tuple[str, list[str]]:
    """Returns the text of a module with debug locations, and the names that line numbers stand for, starting with line
    1.
    """
    names: dict[str, int] = {"": 1}
    texts, metadata = [module.declarations_text()], [_HEAD]
    location_ids: dict[tuple[int, int], int] = {}
    free = MIN_METADATA + 4
    for function in module.all_functions():
        scope, free = free, free + 1
        metadata.append(
            f'!{scope} = distinct !DISubprogram(name: "{function.name}", file: !{MIN_METADATA + 2}, line: 1, '
            f"type: !{MIN_METADATA + 3}, unit: !{MIN_METADATA}, spFlags: DISPFlagDefinition)"
        )
        texts.append(f"{function.head().removesuffix('{')}!dbg !{scope} {{")
        for line, name in [*_lines(function)][1:]:
            if line.startswith("  "):
                number = names.setdefault(name, len(names) + 1)
                if (scope, number) not in location_ids:
                    location_ids[scope, number], free = free, free + 1
                    metadata.append(f"!{free - 1} = !DILocation(line: {number}, scope: !{scope})")
                line = f"{line}, !dbg !{location_ids[scope, number]}"
            texts.append(line)
    return "\n".join([*texts, ATTRIBUTE_GROUPS, *metadata]), list(names)


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


def _lines(function: Function) -> Iterator[tuple[str, str]]:
    """Yields the lines of a function, each with the name of its instruction."""
    unnamed = [function.head(), "entry:", *[instruction.line() for instruction in function.prologue]]
    yield from ((line, "") for line in unnamed)
    for position, instruction in enumerate(function.body):
        for line in instruction.line().split("\n"):
            yield line, function.locations.get(position, "")
    yield "}", ""


def _commented(line: str, name: str, mark: str) -> str:
    return f"{line.expandtabs():60} {mark} %{name}" if name else line
