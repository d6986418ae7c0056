"""Declaration of operations: operands, typed attributes, shape rule, semantics and documentation in one class.

    class Transpose(Operation, opcode="transpose"):
        '''Permutes the dimensions (TRANSPOSE-1).'''

        operands = {"operand": "array of any type"}
        permutation: Ints = attribute(INTS, text="dimensions", proto="dimensions", doc="a permutation of 0 .. rank-1")

        def infer(self, operand: Shape) -> Shape: ...
        def evaluate(self, ctx: Context, operand: Array) -> Array: ...

An instance is immutable and holds the values of the attributes; the operands belong to the instruction in the graph.
HLO text, protos, the builder's methods, the verifier and the reference page are derived from these declarations.
`hloom.ops` imports the families, which registers their classes in `OPERATIONS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NoReturn, Self, dataclass_transform

from hloom.errors import ArgumentError, RuleError
from hloom.ops.context import Computation, Context
from hloom.ops.indexing import Indexing, Indices, Read
from hloom.ops.kinds import AttributeKind, ComputationKind
from hloom.shape import Shape
from hloom.values import Value

REQUIRED: Any = object()

OPERATIONS: dict[str, type[Operation]] = {}


class Field:
    """A declared attribute: its kind, its default, and its names in HLO text and the proto (see `attribute`)."""

    __slots__ = ("always_printed", "default", "doc", "in_parentheses", "kind", "name", "proto", "text")

    def __init__(
        self,
        kind: AttributeKind,
        default: Any,
        text: str | None,
        proto: str | None,
        in_parentheses: bool,
        always_printed: bool,
        doc: str,
    ) -> None:
        self.kind = kind
        self.default = default
        self.text = text
        self.proto = proto
        self.in_parentheses = in_parentheses
        self.doc = doc
        self.always_printed = always_printed
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        if self.text is None:
            self.text = name
        if self.proto is None:
            self.proto = name

    @property
    def required(self) -> bool:
        """Whether the attribute has no default."""
        return self.default is REQUIRED


def attribute(
    kind: AttributeKind,
    *,
    default: Any = REQUIRED,
    text: str | None = None,
    proto: str | None = None,
    in_parentheses: bool = False,
    always_printed: bool = False,
    doc: str = "",
) -> Any:
    """Declares an attribute of an operation; the value of a field in the class body.

    `text` is its name in HLO text (default: the field's name; "" if text does not have it); a value that equals
    `default` is not printed unless `always_printed`. `in_parentheses` prints the value in place of operands
    (`parameter(0)`, `constant({1, 2})`). `proto` is the dotted path of the field in HloInstructionProto (default: the
    field's name; "" if the proto does not have it). `doc` says what it is, in the reference and in editors.
    """
    return Field(kind, default, text, proto, in_parentheses, always_printed or default is REQUIRED, doc)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(attribute,))
class Operation:
    """Base class of all operations: an opcode with the values of its attributes.

    A subclass defines `infer`, or overrides `check` if the result shape does not follow from operands and attributes
    (reshape, convert, custom-call ..), and `evaluate`, its semantics on NumPy arrays. The constructor takes attributes
    as keyword arguments; it raises RuleError[GEN-3] for missing or invalid values, ArgumentError for unknown names.
    """

    __slots__ = ("__dict__", "__weakref__", "_hash")

    opcode: ClassVar[str] = ""
    text_opcode: ClassVar[str] = ""
    """The opcode in text and protos, if it differs from `opcode`."""
    operands: ClassVar[dict[str, str]] = {}
    """The operands in order, by name, and what each is. `*name` is variadic; several of them have equal lengths."""
    is_variadic: ClassVar[bool] = False
    see_also: ClassVar[tuple[str, ...]] = ()
    """The opcodes of related operations, to which readers are referred, and from these back."""
    fields: ClassVar[tuple[Field, ...]] = ()
    payload: ClassVar[Field | None] = None
    """The attribute that text has in parentheses, in place of operands."""
    calling_fields: ClassVar[tuple[Field, ...]] = ()
    """The attributes that hold computations."""
    elementwise: ClassVar[bool] = False
    """Whether element i of the result depends only on the elements i of the operands (scalars are broadcast)."""
    cost: ClassVar[int] = 1
    """Time to compute an element of the result, in vectorised additions of one element: passes and schedules use it."""
    has_side_effect: ClassVar[bool] = False
    """Whether the operation must be neither removed nor duplicated (GEN-11)."""
    is_pinned: ClassVar[bool] = False
    """Whether an instruction stands for more than its value: equal ones are not merged, and none is moved."""
    mixes_precision: ClassVar[bool] = True
    """Whether operands, combiners and results may have several floating-point types, as in XLA's verifier."""

    expand: ClassVar[Callable[..., Any] | None] = None
    """`expand(self, build, module, *operands)` returns an equivalent instruction that `build`, an
    `hloom.passes.op_builder.OpBuilder`, creates from other operations. For operations that compilers do not implement.
    """
    builder_name: ClassVar[str] = ""
    """The name of the generated builder method; "" if the builder defines its own, or has none."""

    def __init_subclass__(cls, opcode: str = "", builder: str = "", **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = {name: value for name, value in vars(cls).items() if isinstance(value, Field)}
        inherited = {field.name: field for field in cls.fields}
        cls.fields = tuple((inherited | own).values())
        cls.payload = next((field for field in cls.fields if field.in_parentheses), None)
        cls.is_variadic = any(name[0] == "*" for name in cls.operands)
        cls.calling_fields = tuple(field for field in cls.fields if isinstance(field.kind, ComputationKind))
        if opcode:
            known = OPERATIONS.get(opcode)
            if known is not None and known.__module__ != cls.__module__:
                raise ArgumentError(f"operation {opcode} is already declared in {known.__module__}")
            cls.opcode = opcode
            cls.builder_name = builder
            OPERATIONS[opcode] = cls

    def __init__(self, **attributes: Any) -> None:
        values = self.__dict__
        for field in self.fields:
            value = attributes.pop(field.name, field.default)
            if value is REQUIRED or (value is None and field.default is REQUIRED):
                raise RuleError(self.opcode, "GEN-3", f"attribute {field.text or field.name} is missing")
            values[field.name] = field.kind.normalize(self.opcode, field.name, value)
        if attributes:
            known = ", ".join(field.name for field in self.fields) or "none"
            raise ArgumentError(f"{self.opcode} has no attribute {', '.join(attributes)}; it has: {known}")

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable: use .replace({name}=...)")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        found: int | None = getattr(self, "_hash", None)
        if found is None:
            found = hash((type(self), *self.__dict__.values()))
            object.__setattr__(self, "_hash", found)
        return found

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.__dict__.items())
        return f"{type(self).__name__}({shown})"

    def replace(self, **attributes: Any) -> Self:
        """Returns the operation with some attributes changed."""
        return type(self)(**{**self.__dict__, **attributes})

    # The rules, given by subclasses

    def infer(self, *operands: Any) -> Shape:
        """Returns the result shape for operand shapes (GEN-2). Raises RuleError if they are invalid."""
        raise NotImplementedError(f"{self.opcode}: the result shape is declared, not inferred")

    def check(self, result: Shape, *operands: Any) -> None:
        """Checks a declared result shape, and the operand shapes; layouts are ignored (SL-16). Raises RuleError."""
        self.check_declared(result, self.infer(*operands))

    def check_declared(self, result: Shape, inferred: Shape) -> None:
        """Checks a declared result shape against the one that the operands give (GEN-2)."""
        if not inferred.compatible(result):
            self.reject("GEN-2", f"the result is declared as {result}, but the operands give {inferred}")

    def canonical(self, operands: Sequence[Shape]) -> Operation:
        """Returns the canonical form for some operand shapes: attributes that these imply are added or removed, as in
        HLO text.
        """
        return self

    def check_run(self, replicas: int, partitions: int, result: Shape, operands: Sequence[Shape]) -> None:
        """Checks rules that apply to a run on some replicas and partitions, such as replica groups (COLL-3). Raises
        RuleError.
        """

    def evaluate(self, ctx: Context, *operands: Any) -> Value:
        """Computes the value of the result from the values of the operands."""
        raise NotImplementedError(self.opcode)

    def indexing(self, at: Indexing, index: Indices) -> list[Read] | None:
        """Returns the operand elements from which the result element at `index` is computed; None if they are not a
        function of the index, as in sort.
        """
        if not self.elementwise:
            return None
        return [Read(k, index if shape.rank else ()) for k, shape in enumerate(at.operands)]

    def on_blocks(self, whole: Sequence[Shape], blocks: Sequence[Shape], result: Shape) -> Operation:
        """Returns the operation for blocks of its operands and its result, in place of the `whole` operands.

        Blocks are parts along dimensions in which the operation is independent (`IndexingMap.independent`). Attributes
        that hold sizes are adapted.
        """
        return self

    # Services

    @classmethod
    def argument_docs(cls) -> dict[str, str]:
        """Returns what each operand and attribute is, by its name."""
        operands = {name.lstrip("*"): doc for name, doc in cls.operands.items()}
        return operands | {field.name: field.doc for field in cls.fields}

    @classmethod
    def has_indexing(cls) -> bool:
        """Whether the operation declares an indexing map, for some shapes at least."""
        return cls.elementwise or cls.indexing is not Operation.indexing

    @property
    def computations(self) -> Iterator[Computation]:
        """Yields the computations among the attributes, in declaration order."""
        for field in self.calling_fields:
            yield from field.kind.computations(self.__dict__[field.name])

    def with_computations(self, replacement: Callable[[Computation], Computation]) -> Self:
        """Returns the operation with each computation c among its attributes replaced by `replacement(c)`."""
        changed: dict[str, Any] = {}
        for field in self.calling_fields:
            value = self.__dict__[field.name]
            if value is not None:
                many = isinstance(value, tuple)
                changed[field.name] = tuple(map(replacement, value)) if many else replacement(value)
        return self.replace(**changed) if changed else self

    def bind(self, operands: Sequence[Any]) -> tuple[Any, ...]:
        """Groups a flat list of operands by the declared names: single operands as they are, variadic ones as tuples.

        Raises RuleError[GEN-3] for a wrong number of operands.
        """
        names = self.operands
        if not self.is_variadic and len(names) == len(operands):
            return tuple(operands)
        starred = sum(name[0] == "*" for name in names)
        rest = len(operands) - (len(names) - starred)
        if rest < 0 or (starred == 0 and rest) or (starred and rest % starred):
            wanted = ", ".join(f"{name[1:]}..." if name[0] == "*" else name for name in names) or "none"
            self.reject("GEN-3", f"takes operands ({wanted}), got {len(operands)}")
        each = rest // starred
        bound: list[Any] = []
        position = 0
        for name in names:
            if name[0] == "*":
                bound.append(tuple(operands[position : position + each]))
                position += each
            else:
                bound.append(operands[position])
                position += 1
        return tuple(bound)

    def reject(self, clause: str, message: str) -> NoReturn:
        """Raises RuleError with the opcode as its subject: `pad[PAD-3]: message`."""
        raise RuleError(self.opcode, clause, message)
