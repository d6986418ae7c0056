"""Worked examples as Python: the program that builds and runs the example, in the words of a user of hloom."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import hloom as hl
from handbook.arguments import GROUPED, PAIRED, arguments_of
from handbook.specification import Example, method_name
from hloom.text import parse_shape
from hloom.types import BY_NAME, PrimitiveType

WIDTH = 84
"""Characters in a line of code; longer calls have an argument a line."""
MAX_ELEMENTS = 40
"""The most elements that the operands and the result of a small example have."""

_OPERATORS = {"Add": ast.Add, "Sub": ast.Sub, "Mul": ast.Mult, "Div": ast.Div}
_COMPARISONS = {"Lt": ast.Lt, "Le": ast.LtE, "Gt": ast.Gt, "Ge": ast.GtE, "Eq": ast.Eq}


@dataclass(frozen=True)
class Program:
    """Statements that build a computation with `builder`, and the call that runs it."""

    statements: tuple[str, ...]
    call: str

    def computation(self) -> hl.XlaComputation:
        """Executes the statements; returns what they build. Raises HloomError if the example is invalid."""
        names: dict[str, Any] = _names()
        for statement in self.statements:
            exec(statement, names)
        return names["builder"].build()

    def run(self) -> Any:
        """Executes the statements and the call; returns its value."""
        names: dict[str, Any] = _names()
        for statement in self.statements:
            exec(statement, names)
        return eval(self.call, names)


class _Code(str):
    """Python source, which stands for itself in calls."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _names() -> dict[str, Any]:
    import ml_dtypes
    import numpy as np

    return {"hl": hl, "np": np, "ml_dtypes": ml_dtypes}


def program(example: Example) -> Program | None:
    """Returns the program of an example; None if the builder alone does not express it, or if it is large."""
    attributes = example["attributes"]
    if {"hlo", "infeed", "operand_minor_to_major"} & attributes.keys() or _count(example) > MAX_ELEMENTS:
        return None
    if not hasattr(hl.XlaBuilder, method_name(example["op"])):
        return None
    replicas = attributes.get("replicas")
    rows = example["inputs"] if replicas else [example["inputs"]]
    if not rows or any("tuple" in literal for row in rows for literal in row):
        return None
    operands = operand_names(example["op"], len(rows[0]))
    statements = [f'builder = hl.XlaBuilder("{example["id"].replace("-", "_")}")']
    for number, (name, literal) in enumerate(zip(operands, rows[0], strict=True)):
        statements.append(f'{name} = builder.parameter({number}, {_shape(literal)}, "{name}")')
    if function := attributes.get("function"):
        statements.append(f'hl.register_custom_call("{attributes["target_name"]}", {function})')
    statements.append(_root(example, operands))
    values = [[_Code(value(literal)) for literal in row] for row in rows]
    if replicas:
        return Program(
            tuple(statements), _call(f"hl.compile(builder.build(), replicas={replicas}).run_replicas", [values])
        )
    return Program(tuple(statements), _call("hl.compile(builder.build())", values[0]))


def operand_names(op: str, count: int) -> list[str]:
    """Returns the names of the operands of a builder function, those of its arguments where they are single."""
    if op in PAIRED:
        ordinals = [""] if count == 2 else [str(k) for k in range(count // 2)]
        return [f"x{k}" for k in ordinals] + [f"init{k}" for k in ordinals]
    if op in GROUPED or op in ("Call", "CompositeCall", "Tuple", "GetDimensionSize", "SetDimensionSize"):
        return [f"x{k}" for k in range(count)] if count > 1 else ["x"]
    if op == "Conditional":
        return ["index", *(f"x{k}" for k in range(count - 1))]
    if op in ("DynamicSlice", "DynamicUpdateSlice"):
        fixed = ["operand", "update"][: 1 + (op == "DynamicUpdateSlice")]
        return [*fixed, *(f"start{k}" for k in range(count - len(fixed)))]
    if op == "Scatter" and count > 3:
        half = count // 2
        return [*(f"x{k}" for k in range(half)), "scatter_indices", *(f"updates{k}" for k in range(half))]
    special = {
        "Scatter": ["operand", "scatter_indices", "updates"],
        "SelectAndScatter": ["operand", "source", "init"],
        "While": ["init"],
        "RngBitGenerator": ["state"],
        "AfterAll": [f"token{k}" for k in range(count)],
    }
    method = getattr(hl.XlaBuilder, method_name(op), None)
    names = list(inspect.signature(method).parameters)[1:] if method else []
    names = special.get(op, names)[:count]
    return names if len(names) == count else [f"x{k}" for k in range(count)]


def _root(example: Example, operands: Sequence[str]) -> str:
    """The statement that adds the operation of the example."""
    if source := example["attributes"].get("program"):
        renamed = {f"x{k}": name for k, name in enumerate(operands)}
        return f"result = {python(source, 'builder', renamed)}"
    codes: list[Any] = [_Code(name) for name in operands]
    positional, keywords = arguments_of(
        example, codes, lambda text: _Code(python(text)), lambda text: _Code(_type(text))
    )
    method = method_name(example["op"])
    return _call(f"result = builder.{method}", positional, keywords)


def _call(function: str, positional: Sequence[Any], keywords: dict[str, Any] | None = None) -> str:
    """A call, on one line or with an argument a line."""
    arguments = [repr(a) for a in positional] + [f"{key}={_plain(a)!r}" for key, a in (keywords or {}).items()]
    arguments = [a if '"' in a else a.replace("'", '"') for a in arguments]
    line = f"{function}({', '.join(arguments)})"
    if len(line) <= WIDTH:
        return line
    return f"{function}(\n" + "".join(f"    {argument},\n" for argument in arguments) + ")"


def _plain(value: Any) -> Any:
    """Pairs are tuples, as a user writes them."""
    if isinstance(value, list) and value and all(isinstance(item, list) for item in value):
        return [tuple(item) for item in value]
    return value


def python(source: str, builder: str = "", renamed: dict[str, str] | None = None) -> str:
    """Rewrites an expression over builder functions: `lambda x, y: Add(x, y)` is `lambda x, y: x + y`."""
    tree = ast.parse(source, mode="eval")
    return ast.unparse(ast.fix_missing_locations(_Rewriter(builder, renamed or {}).visit(tree)))


class _Rewriter(ast.NodeTransformer):
    """Replaces calls of builder functions by operators and methods."""

    def __init__(self, builder: str, renamed: dict[str, str]) -> None:
        self.builder = builder
        self.renamed = renamed

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        outer, self.builder = self.builder, f"{node.args.args[0].arg}.builder"
        self.generic_visit(node)
        self.builder = outer
        return node

    def visit_Name(self, node: ast.Name) -> Any:
        return ast.Name(self.renamed.get(node.id, node.id), node.ctx)

    def visit_Call(self, node: ast.Call) -> Any:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        arguments = [self.visit(argument) for argument in node.args]
        if name in _OPERATORS:
            return ast.BinOp(arguments[0], _OPERATORS[name](), arguments[1])
        if name in _COMPARISONS:
            return ast.Compare(arguments[0], [_COMPARISONS[name]()], [arguments[1]])
        if name == "Neg":
            return ast.UnaryOp(ast.USub(), arguments[0])
        if name == "GetTupleElement" and self.builder != "builder":
            return ast.Subscript(arguments[0], arguments[1])
        if name == "Constant":
            return ast.parse(_array(arguments[0].value, ast.literal_eval(node.args[1])), mode="eval").body
        return ast.Call(ast.parse(f"{self.builder}.{method_name(name)}", mode="eval").body, arguments, [])


def value(literal: dict[str, Any]) -> str:
    """Returns the NumPy expression of a literal."""
    return _array(literal["type"], literal["value"], literal["shape"])


def _array(type_name: str, values: Any, sizes: Sequence[int] | None = None) -> str:
    element_type = BY_NAME[type_name]
    dtype = element_type.dtype
    text = _elements(values, element_type)
    empty = f".reshape({', '.join(map(str, sizes))})" if sizes and 0 in sizes and len(sizes) > 1 else ""
    if dtype.__class__.__module__ == "numpy.dtypes" and dtype.name != "void":
        return f"np.{'bool_' if dtype.name == 'bool' else dtype.name}({text}){empty}"
    return f"np.array({text}, ml_dtypes.{dtype.name}){empty}"


def _elements(values: Any, element_type: PrimitiveType) -> str:
    if isinstance(values, list):
        return "[" + ", ".join(_elements(each, element_type) for each in values) + "]"
    if isinstance(values, str) and not element_type.is_complex:
        return f"{'-' * values.startswith('-')}np.{values.lstrip('-')}"
    if isinstance(values, str):
        return values.replace("nan", "np.nan").replace("inf", "np.inf") if values.strip("()") else values
    return f"{values:g}" if _is_whole(values) else repr(values)


def _is_whole(number: Any) -> bool:
    return isinstance(number, float) and number.is_integer() and abs(number) < 1e5 and str(number) != "-0.0"


def _shape(literal: dict[str, Any]) -> str:
    return _type(f"{literal['type']}[{','.join(map(str, literal['shape']))}]")


def _type(text: str) -> str:
    """A shape as a user of hloom writes it."""
    shape = parse_shape(text)
    if not shape.is_array or not shape.is_static:
        return f"hl.parse_shape({text!r})"
    sizes = ", ".join(map(str, shape.dimensions)) or "()"
    return f"hl.{shape.element_type.name.lower()}[{sizes}]"


def _count(example: Example) -> int:
    """The number of elements of the operands and the results of an example."""

    def count(literal: Any) -> int:
        if isinstance(literal, list):
            return sum(map(count, literal))
        if isinstance(literal, dict):
            return count(literal["tuple"]) if "tuple" in literal else _size(literal["shape"])
        return 0

    return count(example["inputs"]) + count(example.get("expected"))


def _size(sizes: Sequence[int]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total
