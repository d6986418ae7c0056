"""The page of an operation: summary, picture, inputs, result, examples, its text forms, rules and errors."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

import clauses as citations
import hloom as hl
from handbook import specification
from handbook.docstrings import arguments_of
from handbook.drawings import arguments, parse
from handbook.literals import to_array
from handbook.markdown import cell, code, columns, escaped, table, wrapped
from handbook.programs import EXCHANGES, LOOP, MOVEMENTS, OTHERS, READS
from handbook.python_code import Program, program
from handbook.signatures import builder_signature
from handbook.specification import ROOT, Example, Section
from hloom.ops.attributes import ComparisonDirection
from hloom.ops.elementwise_binary import Binary
from hloom.ops.elementwise_unary import Unary
from hloom.ops.operation import OPERATIONS, Operation
from hloom.ops.reference import default_text, operand_docs
from hloom.stablehlo.exporter.module import print_stablehlo
from hloom.stablehlo.operations import BY_OPCODE

PICTURED = {**MOVEMENTS, **READS, **EXCHANGES, "while": LOOP}
NAMED = {"token": "token", "tuple": "tuple", "context": "tuple"}
"""Types of operands of these names, which are not arrays."""
ARTICLES = {"array": "An", "shape of": "A value of the", "same shape": "A value of the"}
"""Types of results that are words, and how a sentence begins with them."""
SHARED = {"replica_groups": ("COLL-2", "COLL-3", "COLL-4"), "channel_id": ("COLL-5",), "computation": ("GEN-8",)}
"""Clauses about attributes of several operations."""
MAX_EXAMPLES, MAX_ERRORS, MAX_TESTS, MAX_LINES = 4, 2, 6, 32


def operation_page(declaration: type[Operation]) -> str:
    """Returns the Markdown of the page of an operation."""
    opcode, sections = declaration.opcode, sections_of(declaration)
    rules = rules_of(declaration)
    examples = _examples(rules, sections)
    picture = f"![Elements of the operands and of the result of {opcode}]({opcode}.svg)\n" if opcode in PICTURED else ""
    parts = [
        f"# {opcode}\n",
        *_signatures(methods_of(declaration, sections), declaration),
        escaped(inspect.getdoc(declaration) or "") + "\n",
        picture,
        _section("Inputs", _inputs(declaration, sections, rules)),
        _section("Result", _result(declaration, sections) + _of_shape(rules)),
        _section("Examples", "\n".join(map(_example, examples))),
        _section("HLO and StableHLO", _texts(opcode, examples)),
        _section("Rules", _statements(rules)),
        _section("Constraints", _constraints(rules)),
        _section("Errors", "\n".join(_errors(rules, sections))),
        _section("Semantics in NumPy", _semantics(declaration)),
        _section("See also", _see_also(declaration)),
        _section("Implementation", _implementation(declaration, rules)),
    ]
    return "\n".join(part for part in parts if part)


def sections_of(declaration: type[Operation]) -> list[Section]:
    """Returns the sections of the specification about the builder functions that make an operation."""
    names = {declaration.builder_name}
    if declaration.opcode == "compare":
        names = {d.value.lower() + order for d in ComparisonDirection for order in ("", "_total_order")}
    found = [section for section in specification.sections() if section.opcode == declaration.opcode]
    return found or [section for section in specification.sections() if section.method in names]


def rules_of(declaration: type[Operation]) -> list[str]:
    """Returns the numbers of the clauses of an operation's sections, of those that it cites, and of its attributes."""
    sections = sections_of(declaration)
    text = (declaration.__doc__ or "") if sections else inspect.getsource(declaration)
    named = [rule for field in declaration.fields for rule in SHARED.get(field.name, ())]
    return list(dict.fromkeys([*(rule for section in sections for rule in section.clauses), *_cited(text), *named]))


def constraints(rules: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Returns what clauses say is invalid, by their number, with that of the clauses to which they refer."""
    refused = {rule: specification.parts(rule).invalid for rule in rules}
    for rule in [other for items in refused.values() for other in _cited(" ".join(items))]:
        refused.setdefault(rule, specification.parts(rule).invalid)
    return {rule: items for rule, items in refused.items() if items}


def methods_of(declaration: type[Operation], sections: Iterable[Section]) -> list[str]:
    """Returns the methods of `XlaBuilder` that make an operation."""
    names = [declaration.builder_name, *(section.method for section in sections)]
    if declaration.opcode in ("parameter", "constant"):
        names.append(declaration.opcode)
    return [name for name in dict.fromkeys(names) if name and hasattr(hl.XlaBuilder, name)]


def summary(declaration: type[Operation]) -> str:
    """Returns the first sentence of an operation's documentation, without clause numbers."""
    text = (inspect.getdoc(declaration) or "").split("\n\n")[0]
    return re.sub(r" \((?:[A-Z]+[A-Z0-9]*-\d+[^)]*|a later addition to XLA)\)", "", " ".join(text.split()))


def _section(title: str, content: str) -> str:
    return f"## {title}\n\n{content.rstrip()}\n" if content.strip() else ""


def _signatures(methods: Iterable[str], declaration: type[Operation]) -> Iterator[str]:
    """The signatures of methods, with the arguments that are not operands and attributes of the operation.

    An argument of several methods is described where it is first.
    """
    described: set[tuple[str, str]] = {*declaration.argument_docs().items()}
    for method in methods:
        own = [item for item in arguments_of(getattr(hl.XlaBuilder, method)).items() if item not in described]
        described.update(own)
        lines = [f"- **{name}**: {escaped(text)}" for name, text in own]
        yield "\n".join([f"````{{py:method}} XlaBuilder.{method}{builder_signature(method)}\n", *lines, "````\n"])


def _statements(rules: Iterable[str]) -> str:
    stated = {rule: specification.parts(rule).statement for rule in rules}
    return "".join(f"- {rule} {escaped(text)}\n" for rule, text in stated.items() if text)


def _constraints(rules: Iterable[str]) -> str:
    lines = [f"- {rule}{_items(items)}\n" for rule, items in constraints(rules).items()]
    return "Errors are:\n\n" + "".join(lines) if lines else ""


def _items(items: Sequence[str]) -> str:
    """The only item, or a list of them."""
    texts = [escaped(item) for item in items]
    return f" {texts[0]}" if len(texts) == 1 else "".join(f"\n  - {text}" for text in texts)


def _see_also(declaration: type[Operation]) -> str:
    """Links to the operations that a declaration refers to, and to those that refer to it."""
    own = declaration.opcode
    others = [*declaration.see_also, *(opcode for opcode, other in OPERATIONS.items() if own in other.see_also)]
    return "\n".join(f"- [`{o}`]({o}.md): {escaped(summary(OPERATIONS[o]))}" for o in dict.fromkeys(others))


def _cited(text: str) -> list[str]:
    families = frozenset(clause.rpartition("-")[0] for clause in specification.clauses())
    return list(dict.fromkeys(clause for clause, _ in citations.cited(text, families)))


# Tables


def _inputs(declaration: type[Operation], sections: list[Section], rules: list[str]) -> str:
    types = {name: kind for section in reversed(sections) for name, kind in section.argument_types.items()}
    rows = []
    for declared, doc in operand_docs(declaration).items():
        name, several = declared.lstrip("*"), declared.startswith("*")
        kind = NAMED.get(name) or types.get(name, "")
        kind = ("arrays" if several else "array") if kind in ("", "XlaOp", "list of XlaOp") else kind
        rows.append((f"`{name}{' ..' * several}`", escaped(kind), "", escaped(doc) + _constrained(name, rules)))
    for field in declaration.fields:
        other = f", `{field.text}` in HLO text" if field.text and field.text != field.name else ""
        meaning = escaped(field.doc) + other + _constrained(field.name, rules)
        rows.append((f"`{field.name}`", field.kind.description, default_text(field), meaning))
    shown = table(("name", "type", "default", "meaning"), rows)
    return f'<div class="inputs">\n\n{shown}\n</div>\n' if shown else ""


def _constrained(name: str, rules: Iterable[str]) -> str:
    """The constraints that speak of an operand or attribute."""
    pattern = rf"\b{name}\b" if "_" in name else f"`{name}`"
    found = [rule for rule in rules if re.search(pattern, " ".join(specification.parts(rule).invalid))]
    return f" ({', '.join(found)})" if found else ""


def _result(declaration: type[Operation], sections: list[Section]) -> str:
    if issubclass(declaration, Unary):
        return "An array of the operand's shape."
    if issubclass(declaration, Binary):
        return "An array of the shape that the operands have, or to which they are broadcast."
    kinds = list(dict.fromkeys(section.result_type for section in sections if section.result_type))
    words = {
        "S": "The result of the computation.",
        "T": "A value of the type of `init`.",
        "shape": "A value of `shape`.",
    }
    if not kinds or kinds[0] in words:
        return words.get(kinds[0], "") if kinds else ""
    article = next((each for word, each in ARTICLES.items() if kinds[0].startswith(word)), "")
    return f"{article} {kinds[0]}." if article else f"`{kinds[0]}`"


def _of_shape(rules: Iterable[str]) -> str:
    """The clauses that give the shape of the result."""
    found = [rule for rule in rules if re.match(r"Shape:|Result", specification.clauses()[rule])]
    return f" Its shape: {', '.join(found)}." if found else ""


# Examples


def _examples(rules: Iterable[str], sections: Iterable[Section]) -> list[tuple[Example, Program]]:
    """Small worked examples of an operation, of different clauses first, in the order of the specification."""
    own, functions = set(rules), {section.name for section in sections}
    fitting = []
    for example in specification.examples():
        if example["clause"] in own and example["op"] in functions and not example.get("expected_error"):
            made = program(example)
            if made is not None:
                fitting.append((example, made))
    seen: set[str] = set()
    ranked = []
    for example, made in fitting:
        ranked.append((example["clause"] in seen, len(ranked), (example, made)))
        seen.add(example["clause"])
    chosen = sorted(ranked, key=lambda item: item[:2])[:MAX_EXAMPLES]
    return [each for _, _, each in sorted(chosen, key=lambda item: item[1])]


def _example(item: tuple[Example, Program]) -> str:
    example, made = item
    words = example["id"].split("-")[1:]
    name = " ".join(words).capitalize()
    title = f"**{name}** ({example['clause']})" if len(name) > 1 else example["clause"]
    note = f": {escaped(example['note'])}" if example["note"] else ""
    return f"{title}{note}\n\n" + code("pycon", f"{_prompted(made)}\n{_shown(example)}")


def _prompted(made: Program) -> str:
    statements = [*made.statements, made.call]
    return "\n".join(">>> " + statement.replace("\n", "\n... ") for statement in statements)


def _shown(example: Example) -> str:
    expected = example["expected"]
    value = [to_array(each) for each in expected] if isinstance(expected, list) else to_array(expected)
    return repr(value)


def _errors(rules: Iterable[str], sections: Iterable[Section]) -> Iterator[str]:
    own, functions, count = set(rules), {section.name for section in sections}, 0
    for example in specification.examples():
        if count == MAX_ERRORS or example["clause"] not in own or example["op"] not in functions:
            continue
        made = program(example) if example.get("expected_error") else None
        message = _message(made) if made else ""
        if made and message:
            count += 1
            yield code("pycon", "\n".join(_error_lines(made)) + f"\n{message}")


def _error_lines(made: Program) -> list[str]:
    return [">>> " + statement.replace("\n", "\n... ") for statement in made.statements[1:]]


def _message(made: Program) -> str:
    """The error that the statements of a program raise; "" if only its run does."""
    try:
        made.computation()
    except hl.HloomError as error:
        return f"hloom.errors.{type(error).__name__}: {str(error).splitlines()[0]}"
    return ""


# Text forms


def _texts(opcode: str, examples: list[tuple[Example, Program]]) -> str:
    """The text of a program in HLO and StableHLO, and a run of it where no worked example shows one."""
    text = PICTURED.get(opcode) or OTHERS.get(opcode) or ("" if examples else _of_others(opcode))
    if text:
        module = parse(text)
    elif examples:
        module = examples[0][1].computation().module
    else:
        return ""
    module.name = "example"
    hlo = module.to_text(layouts=opcode in ("bitcast", "copy"))
    hlo = re.sub(r"^HloModule.*\n+", "", hlo)
    blocks = [code("hlo", wrapped(hlo))]
    try:
        stablehlo = re.sub(r"^module .*\n|\n}\s*$", "", print_stablehlo(module, locations=False))
        stablehlo = re.sub(r"^  ", "", stablehlo, flags=re.MULTILINE)
        blocks.append(code("mlir", wrapped(stablehlo)))
    except hl.HloomError as error:
        blocks.append(f"{escaped(str(error).splitlines()[0])}\n")
    return columns(*blocks) + ("" if examples else "\n" + _run(module, text or ""))


def _of_others(opcode: str) -> str:
    """A program with the operation, of another one."""
    return next((text for text in OTHERS.values() if f" {opcode}(" in text), "")


def _run(module: hl.Module, text: str) -> str:
    """A call of the program, on the interpreter, with consecutive integers."""
    if "is_host_transfer" in text or "infeed" in text or "custom-call" in text:
        return ""
    filled = arguments(module)
    written = ", ".join(f"np.{array.dtype.name}({array.tolist()})" for array in filled)
    groups = re.search(r"\{\{(.*?)\}\}", text) if "replica_groups" in text or "source_target" in text else None
    if groups:
        count = max(map(int, re.findall(r"\d+", groups[1]))) + 1
        result = hl.compile(module, "interpreter", replicas=count).run_replicas([filled] * count)
        call = f"hl.compile(text, replicas={count}).run_replicas([[{written}]] * {count})"
    else:
        result = hl.compile(module, "interpreter", seed=0)(*filled)
        call = f"hl.compile(text)({written})"
    return code("pycon", f">>> {call}\n{np.array_repr(result) if isinstance(result, np.ndarray) else repr(result)}")


# Semantics and implementation


def _semantics(declaration: type[Operation]) -> str:
    """The part of a declaration that the interpreter runs: `evaluate`, or `function`. "" if it is long."""
    text = textwrap.dedent(inspect.getsource(declaration))
    (declared,) = ast.parse(text).body
    for node in declared.body if isinstance(declared, ast.ClassDef) else ():
        names = (
            [target.id for target in node.targets if isinstance(target, ast.Name)]
            if isinstance(node, ast.Assign)
            else []
        )
        if getattr(node, "name", "") in ("evaluate", "function") or "function" in names:
            lines = text.splitlines()[node.lineno - 1 : node.end_lineno]
            return code("python", textwrap.dedent("\n".join(lines))) if len(lines) <= MAX_LINES else ""
    return ""


def _implementation(declaration: type[Operation], rules: list[str]) -> str:
    path = f"src/{declaration.__module__.replace('.', '/')}.py:{inspect.getsourcelines(declaration)[1]}"
    lines = [f"- Declaration: `{path}`, class `{declaration.__name__}`"]
    row = BY_OPCODE.get(declaration.opcode)
    if row and row.dialect == "stablehlo":
        lines.append(f"- StableHLO: [`stablehlo.{row.name}`](https://openxla.org/stablehlo/spec#{row.name})")
    if indexing := _indexing(declaration.opcode):
        lines.append(f"- Indexing map of the program above: `{indexing}`")
    if tests := _tests(rules):
        lines.append(f"- Tests: {tests}")
    return "\n".join(lines) + "\n"


def _indexing(opcode: str) -> str:
    text = PICTURED.get(opcode)
    found = parse(text).entry.root.indexing_map() if text else None
    return cell(str(found)) if found else ""


def _tests(rules: list[str]) -> str:
    tests = citations.citations(ROOT / "tests")
    files = dict.fromkeys(file for rule in rules for file in tests.get(rule, {}))
    shown = [*files][:MAX_TESTS]
    return ", ".join(f"`tests/{file}`" for file in shown)


def families() -> dict[str, list[type[Operation]]]:
    """Returns the operations by the title of the file that declares them."""
    found: dict[str, list[type[Operation]]] = {}
    for opcode in sorted(OPERATIONS):
        module = inspect.getmodule(OPERATIONS[opcode])
        title = (inspect.getdoc(module) or "").split("\n")[0].partition(". ")[0].rstrip(".")
        found.setdefault(re.sub(r" \(.*\)$", "", title), []).append(OPERATIONS[opcode])
    return found
