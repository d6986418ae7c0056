"""Structural operations: parameter, constant, tuples, tokens, barriers (spec 1, 87, 91, 115)."""

from __future__ import annotations

from hloom.errors import RunError
from hloom.literal import Literal
from hloom.ops.attributes import Domain as DomainShardings
from hloom.ops.context import Context
from hloom.ops.kinds import BOOLS, DOMAIN, INT, LITERAL, WORD
from hloom.ops.operation import Operation, attribute
from hloom.ops.traits import Identity, NoWork, Structural
from hloom.shape import TOKEN, Shape
from hloom.values import TOKEN_VALUE, Token, Value


class Parameter(Structural, Operation, opcode="parameter"):
    """Returns argument `number` of the computation; numbers are 0 .. n-1, each once (GEN-12)."""

    see_also = ("tuple",)
    is_pinned = True
    mixes_precision = False

    number: int = attribute(
        INT, text="", proto="parameter_number", in_parentheses=True, doc="index of the argument, from 0"
    )
    parameter_replicated_at_leaf_buffers: tuple[bool, ...] | None = attribute(
        BOOLS,
        default=None,
        text="parameter_replication",
        proto="parameter_replication.replicated_at_leaf_buffers",
        doc="whether each leaf is known to be equal on all replicas",
    )

    def check(self, result: Shape) -> None:
        if self.number < 0:
            self.reject("GEN-12", f"parameter numbers start at 0, got {self.number}")
        flags = self.parameter_replicated_at_leaf_buffers
        count = sum(1 for _ in result.leaves())
        if flags is not None and len(flags) != count:
            self.reject("GEN-12", f"parameter_replication has a value for each of {count} leaves, got {len(flags)}")


class Constant(Structural, Operation, opcode="constant"):
    """Returns a constant value, a literal (GEN-12)."""

    see_also = ("iota", "parameter")
    cost = 0
    mixes_precision = False
    literal: Literal = attribute(LITERAL, text="", in_parentheses=True, doc="value")

    def infer(self) -> Shape:
        return self.literal.shape

    def evaluate(self, ctx: Context) -> Value:
        return self.literal.value


class ElidedConstant(Operation):
    """Returns a constant whose values the text elides, `constant({...})`: such a module can be inspected, but not run.

    An addition of hloom: XLA reads such constants as zeros. Passes do not treat it as a constant; `number`
    distinguishes it from others, so that no two are merged, and `text` is the text in parentheses.
    """

    opcode = "elided-constant"
    text_opcode = "constant"
    number: int = attribute(INT, text="", proto="", doc="number that tells constants apart")
    text: str = attribute(WORD, default="{...}", proto="", in_parentheses=True, doc="text in parentheses")

    def check(self, result: Shape) -> None:
        """Accepts any shape."""

    def evaluate(self, ctx: Context) -> Value:
        raise RunError(f"the values of constant %{ctx.instruction.name} were left out of the text ({self.text})")


class Tuple(Structural, Operation, opcode="tuple", builder="tuple"):
    """Groups any number of values in a tuple, which may be empty and nest (TUPLE-1)."""

    see_also = ("get-tuple-element",)
    mixes_precision = False
    operands = {"*elements": "values of any shapes"}

    def infer(self, elements: tuple[Shape, ...]) -> Shape:
        return Shape.tuple_of(elements)

    def evaluate(self, ctx: Context, elements: tuple[Value, ...]) -> Value:
        return elements


class GetTupleElement(Structural, Operation, opcode="get-tuple-element", builder="get_tuple_element"):
    """Extracts the element of a tuple at a constant index (GETTUPLEELEMENT-1)."""

    mixes_precision = False
    operands = {"tuple": "tuple that has the element"}
    index: int = attribute(INT, proto="tuple_index", doc="index of the element, from 0")

    def infer(self, tuple: Shape) -> Shape:
        if not tuple.is_tuple:
            self.reject("GETTUPLEELEMENT-2", f"takes a tuple, got {tuple}")
        if not 0 <= self.index < len(tuple.elements):
            self.reject("GETTUPLEELEMENT-2", f"index {self.index} must be in [0, {len(tuple.elements)}) for {tuple}")
        return tuple.elements[self.index]

    def evaluate(self, ctx: Context, tuple: Value) -> Value:
        return tuple[self.index]


class AfterAll(Structural, Operation, opcode="after-all", builder="after_all"):
    """Joins any number of tokens into one: users of the result run after all of them (AFTERALL-1, -2)."""

    see_also = ("add-dependency",)
    operands = {"*operands": "tokens to join"}

    def infer(self, operands: tuple[Shape, ...]) -> Shape:
        for shape in operands:
            if not shape.is_token:
                self.reject("AFTERALL-3", f"takes tokens, got {shape}")
        return TOKEN

    def check(self, result: Shape, operands: tuple[Shape, ...]) -> None:
        """Accepts operands of any shape, as XLA's verifier does; the builder accepts tokens only."""
        if not result.is_token:
            self.reject("AFTERALL-1", f"the result is a token, got {result}")

    def evaluate(self, ctx: Context, operands: tuple[Value, ...]) -> Token:
        return TOKEN_VALUE


class AddDependency(Structural, Identity, Operation, opcode="add-dependency", builder="add_dependency"):
    """Returns `operand`, but not before `token`; moves no data (a later addition to XLA).

    The dependency orders an instruction that takes no token, such as a computation on an array, after an infeed or a
    send.
    """

    operands = {
        "operand": "value to return",
        "token": "what must happen before",
    }

    def infer(self, operand: Shape, token: Shape) -> Shape:
        if not token.is_token:
            self.reject("AFTERALL-3", f"the second operand is a token, got {token}")
        return operand

    def evaluate(self, ctx: Context, operand: Value, token: Value) -> Value:
        return operand


class OptimizationBarrier(Identity, NoWork, Operation, opcode="opt-barrier", builder="optimization_barrier"):
    """Returns the operand; optimisations move no computation across it (OPTIMIZATIONBARRIER-1, -2)."""

    see_also = ("add-dependency",)
    is_pinned = True
    mixes_precision = False
    operands = {"operand": "value of any shape"}

    def infer(self, operand: Shape) -> Shape:
        return operand

    def evaluate(self, ctx: Context, operand: Value) -> Value:
        return operand


class Domain(Identity, NoWork, Operation, opcode="domain"):
    """Returns the operand, at the boundary between two domains, such as shardings (a later addition to XLA).

    XLA once marked regions of equal sharding with it, so that no pass would move instructions across; modules from then
    still have it. It computes nothing.
    """

    operands = {"operand": "value of any shape"}
    domain: DomainShardings = attribute(
        DOMAIN, proto="domain_entry_sharding", doc="kind of the boundary, and the shardings before and after it"
    )

    def infer(self, operand: Shape) -> Shape:
        return operand

    def evaluate(self, ctx: Context, operand: Value) -> Value:
        return operand
