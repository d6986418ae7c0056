"""Functions, global variables and modules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from hloom.lir.instructions import Call, Instruction
from hloom.lir.types import I32, VOID, Type, type_of
from hloom.lir.values import Constant, Parameter, Symbol, Value, constant
from hloom.system.records import record


class Attribute(Enum):
    """Properties of a function, in the order in which they are printed."""

    NO_INLINE = "noinline"
    ALWAYS_INLINE = "alwaysinline"
    NO_UNWIND = "nounwind"
    CALL_ONLY = "#3"
    """The function only calls others, so that its own instructions need no optimisation."""


ATTRIBUTE_GROUPS = (
    "attributes #1 = { alwaysinline }\n"
    "attributes #2 = { cold nounwind memory(inaccessiblemem: readwrite) }\n"
    'attributes #3 = { "call-only" }\n'
    'attributes #4 = { cold nounwind }\n!0 = !{i32 1}\n!1 = !{!"CNTVCT_EL0"}\n'
)
"""Definitions of the attributes of functions and calls with a number, and of the metadata of non-temporal stores and of
`AARCH64_TIMER`.
"""
AARCH64_TIMER = Constant("!1", type_of("metadata"), (None,))
"""The name of the register of AArch64 that counts time, some 20 MHz to 1 GHz: an operand of `llvm.read_register`."""


@record(slots=True)
class Declaration:
    """Name and type of a function."""

    name: str
    result: Type
    parameters: tuple[Type, ...]

    @property
    def symbol(self) -> Symbol:
        """Address of the function."""
        return Symbol(self.name)

    def text(self) -> str:
        """Returns the declaration."""
        return f"declare {self.result} @{self.name}({', '.join([type.text for type in self.parameters])})"


@record(slots=True)
class Zeros:
    """Content of a variable: words of zeros."""

    words: int


@record(slots=True, eq=False)
class Global:
    """Global variable or constant.

    A constant belongs to each module that refers to it; a variable belongs to one.
    """

    name: str
    content: bytes | Zeros | Sequence[Value]
    align: int = 8
    is_constant: bool = True
    is_exported: bool = False
    needs: Mapping[str, Need] = field(default_factory=dict)

    @property
    def symbol(self) -> Symbol:
        """Address of the variable."""
        return Symbol(self.name)

    def text(self, pointer_bytes: int = 8) -> str:
        """Returns the definition; words that are addresses take 8 bytes whatever a pointer takes."""
        linkage = "" if self.is_exported else "internal "
        kind = "constant" if self.is_constant else "global"
        return f"@{self.name} = {linkage}{kind} {self._content(pointer_bytes)}, align {self.align}"

    def _content(self, pointer_bytes: int) -> str:
        content = self.content
        if isinstance(content, bytes):
            text = f"\\{content.hex(chr(92))}" if content else ""
            return f'[{len(content)} x i8] c"{text}"'
        if isinstance(content, Zeros):
            return f"[{content.words} x i64] zeroinitializer"
        if pointer_bytes < 8:
            content = [word for value in content for word in _padded(value)]
        types = [value.type.text for value in content]
        values = ", ".join(map(str, content))
        if len(set(types)) == 1:
            return f"[{len(types)} x {types[0]}] [{values}]"
        return f"<{{ {', '.join(types)} }}> <{{ {values} }}>"


def _padded(word: Value) -> Sequence[Value]:
    return [Symbol(word.name), constant(I32, 0)] if isinstance(word, Symbol) else [word]


@dataclass(slots=True, eq=False)
class Function:
    """Function under construction or complete: instructions, and everything outside of it that they refer to.

    The prologue, for stack memory, runs before the body. Functions that are not exported belong to their module alone.
    """

    name: str
    parameters: Sequence[Parameter]
    result: Type = VOID
    attributes: frozenset[Attribute] = frozenset({Attribute.NO_UNWIND})
    is_exported: bool = False
    prologue: list[Instruction] = field(default_factory=list)
    body: list[Instruction] = field(default_factory=list)
    needs: dict[str, Need] = field(default_factory=dict)
    """Declarations of functions, and variables and functions that each module with the function has its own copy of."""
    is_shared: bool = False
    """Whether the parts of a program, and all programs, share its code; it is exported, and its name says all. Before
    it is written its needs are the shared functions that it calls.
    """
    is_combined: bool = False
    """Whether LLVM's instruction combining finds nothing to do in it, which is a tenth of the time to compile it."""
    loops: int = 0
    """Number of counted loops."""
    locations: dict[int, str] = field(default_factory=dict)
    """Names of the HLO instructions that instructions of the body are for, by position."""
    write: Callable[[], Function] | None = None
    """Writes the function, which has no instructions before: they may never be needed."""
    _text: str = field(default="", init=False)

    def complete(self) -> None:
        """Writes the function if it is not written yet. Threads that do so at once write the same."""
        if self.write is not None:
            whole = self.write()
            called = {name for name, need in whole.needs.items() if isinstance(need, Function) and need.is_shared}
            assert called <= self.needs.keys(), (
                f"{self.name} calls {called - self.needs.keys()}, which are not declared"
            )
            self.prologue, self.body, self.needs = whole.prologue, whole.body, whole.needs
            self.loops, self.locations, self.write = whole.loops, whole.locations, None

    @property
    def declaration(self) -> Declaration:
        """Name and type."""
        return Declaration(self.name, self.result, tuple(parameter.type for parameter in self.parameters))

    @property
    def symbol(self) -> Symbol:
        """Address of the function."""
        return Symbol(self.name)

    @property
    def is_call_only(self) -> bool:
        """Whether it only calls others."""
        return Attribute.CALL_ONLY in self.attributes

    @property
    def instructions(self) -> Iterator[Instruction]:
        """All instructions in order."""
        yield from self.prologue
        yield from self.body

    @property
    def length(self) -> int:
        """Number of instructions."""
        return len(self.prologue) + len(self.body)

    @property
    def inlined(self) -> set[str]:
        """Names of the functions that calls inline."""
        return {i.inlines for i in self.body if type(i) is Call and i.attribute is not None} - {""}

    def head(self) -> str:
        """Returns the first line of the definition."""
        parameters = ", ".join([parameter.declaration for parameter in self.parameters])
        attributes = "".join([f" {each.value}" for each in Attribute if each in self.attributes])
        linkage = "" if self.is_exported else "internal "
        return f"define {linkage}{self.result.text} @{self.name}({parameters}){attributes} {{"

    def body_text(self) -> str:
        """Returns the text without the head; instructions are formatted at the first call, when they must be
        complete.
        """
        self.complete()
        if not self._text:
            instructions = [*self.prologue, *self.body]
            self._text = "\n".join(["entry:", *[instruction.line() for instruction in instructions], "}"])
        return self._text

    def text(self) -> str:
        """Returns the definition."""
        return f"{self.head()}\n{self.body_text()}"

    def clear(self) -> None:
        """Removes all instructions."""
        self.prologue, self.body, self.needs, self.locations = [], [], {}, {}
        self.loops, self._text = 0, ""

    def rename(self, names: Mapping[str, str]) -> None:
        """Renames the function, and its references to functions."""
        self.name, self._text = names.get(self.name, self.name), ""
        for instruction in self.instructions:
            instruction.operands = tuple([_renamed(operand, names) for operand in instruction.operands])
        needs = {names.get(name, name): need for name, need in self.needs.items()}
        self.needs = {
            name: replace(need, name=name) if isinstance(need, Declaration) else need for name, need in needs.items()
        }


def _renamed(operand: Value, names: Mapping[str, str]) -> Value:
    return Symbol(names[operand.name]) if isinstance(operand, Symbol) and operand.name in names else operand


Need = Declaration | Global | Function


@record(slots=True)
class LirModule:
    """Functions that are compiled together, with what they need.

    A part of a program declares shared functions, which are parts of their own; other modules have copies.
    """

    functions: Sequence[Function]
    is_part: bool = False

    def needs(self) -> Iterable[Need]:
        """Returns everything that functions, and variables that they need, refer to, except the module's functions."""
        for function in self.functions:
            function.complete()
        needs = needs_of(self.functions, self.is_part)
        unwritten = [need for need in needs.values() if isinstance(need, Function) and need.write is not None]
        for function in unwritten:
            function.complete()
        return self.needs() if unwritten else needs.values()

    def all_functions(self) -> list[Function]:
        """Returns the functions, including those that each module has its own copy of."""
        return [*(need for need in self.needs() if isinstance(need, Function)), *self.functions]

    def declarations_text(self, pointer_bytes: int = 8) -> str:
        """Returns the declarations and the variables."""
        needs = [need for need in self.needs() if not isinstance(need, Function)]
        return "\n".join([n.text(pointer_bytes) if isinstance(n, Global) else n.text() for n in needs])

    def text(self, pointer_bytes: int = 8) -> str:
        """Returns the module as text, for a machine with pointers of a size."""
        functions = [function.text() for function in self.all_functions()]
        return "\n".join([self.declarations_text(pointer_bytes), *functions, ATTRIBUTE_GROUPS])


def needs_of(functions: Iterable[Function], declares_shared: bool = False) -> dict[str, Need]:
    """Returns everything that functions refer to, directly or through variables and functions, except themselves."""
    functions = list(functions)
    defined = {function.name for function in functions}
    needs: dict[str, Need] = {}
    pending: list[Function | Global] = [*functions]
    for each in pending:
        for name, need in each.needs.items():
            if name not in needs and name not in defined:
                if declares_shared and isinstance(need, Function) and need.is_shared:
                    need = need.declaration
                needs[name] = need
                if not isinstance(need, Declaration):
                    pending.append(need)
    return needs
