"""Runs StableHLO's test programs: checks on values, probes, and runs on several devices.

The main function of such a program is evaluated in stages: all ops before an `interpreter.run_parallel` are one HLO
module, the parallel run is another one with several replicas or partitions. Operands of checks become results.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import hloom as hl
from hloom.errors import HloomError
from hloom.runtime.device import Device
from hloom.stablehlo.importer.module import import_module
from hloom.stablehlo.mlir.assembly.reader import template_form
from hloom.stablehlo.mlir.ir import (
    Block,
    DenseElements,
    DialectType,
    FunctionType,
    Number,
    Operation,
    Region,
    Value,
)
from hloom.stablehlo.mlir.parser import Form, Parser, results_of
from hloom.stablehlo.mlir.text import parse_mlir

Array = np.ndarray[Any, np.dtype[Any]]


class CheckFailed(Exception):
    """A check failed."""


# The forms of the ops of the dialects `check` and `interpreter`


def _check(parser: Parser, name: str) -> Operation:
    """`%a, %b, tolerance = 0.1 : types {..}`, also with a constant for the second value."""
    operands = parser.operands()
    attributes: dict[str, Any] = {}
    while parser.scanner.take(","):
        if parser.scanner.peek("dense"):
            attributes["value"] = parser.attribute()
            continue
        word = parser.scanner.word()
        parser.scanner.expect("=")
        attributes[word] = parser.scanner.string() if parser.scanner.peek('"') else float(_number(parser))
    if parser.scanner.take(":"):
        parser.type()
        while parser.scanner.take(","):
            parser.type()
    attributes |= parser.optional_attributes()
    return Operation(name, operands, [], attributes)


def _number(parser: Parser) -> str:
    match = parser.scanner.match(re.compile(r"[-+.\deE]+"))
    return match[0] if match else parser.scanner.fail("expected a number")


def _probe(parser: Parser, name: str) -> Operation:
    operation = _check(parser, name)
    operation.results = results_of([operation.operands[0].type])
    return operation


CHECKS = ("eq", "eq_const", "almost_eq", "almost_eq_const", "close", "serialized_eq")
CHECK_FORMS: dict[str, Form] = {
    **{f"check.expect_{name}": _check for name in CHECKS},
    "interpreter.probe": _probe,
    "interpreter.print": template_form("{operands}{attributes} : {operand_types}"),
}


# Running


def run_file(path: Path, backend: str) -> str:
    """Runs all programs of a file; returns "" if they pass, else the cause of the first failure."""
    checked = False
    for number, text in enumerate(re.split(r"^// -----.*$", path.read_text(), flags=re.MULTILINE), 1):
        if not re.search(r"^\s*(func\.func|module|\")", text, re.MULTILINE):
            continue
        try:
            checked |= Program(text, backend).run()
        except CheckFailed as error:
            return f"program {number}: {error}"
        except HloomError as error:
            return f"program {number}: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        except Exception as error:
            return f"program {number}: {type(error).__name__} is no hloom error: {error}"
    return "" if checked else "no checks"


def is_check(operation: Operation) -> bool:
    target = operation.attributes.get("call_target_name", "")
    return operation.name.startswith("check.") or (isinstance(target, str) and target.startswith("check."))


class Program:
    """An MLIR module with its functions, and the values of its main function that are known."""

    def __init__(self, text: str, backend: str) -> None:
        self.text = text
        self.backend = backend
        self.module = parse_mlir(text, CHECK_FORMS)
        self.functions = [f for f in self.module.regions[0].block.operations if f.name == "func.func"]
        self.by_name = {str(f.attributes["sym_name"]): f for f in self.functions}
        self.known: dict[Value, Array] = {}

    def run(self) -> bool:
        """Runs the main functions; returns False if there is nothing to check."""
        mains = [self.by_name["main"]] if "main" in self.by_name else self.functions
        checked = False
        for function in mains:
            if function.regions and not function.regions[0].block.arguments:
                checked |= self.main(function.regions[0].block.operations)
        return checked

    def main(self, operations: Sequence[Operation]) -> bool:
        """Evaluates the operands of checks and the checks; returns whether there are any."""
        _forward_probes(operations)
        stage: list[Operation] = []
        checks: list[Operation] = []
        for operation in operations:
            if operation.name == "interpreter.run_parallel":
                self.evaluate(stage, [v for v in operation.operands if not _is_token(v)])
                self.run_parallel(operation)
            elif is_check(operation):
                checks.append(operation)
            elif not operation.name.endswith(".return") and not operation.name.startswith("interpreter."):
                stage.append(operation)
        self.evaluate(stage, [value for check in checks for value in check.operands])
        for check in checks:
            self.check(check)
        return bool(checks) or any(operation.name == "interpreter.run_parallel" for operation in operations)

    def evaluate(self, operations: Sequence[Operation], wanted: Sequence[Value]) -> None:
        """Evaluates the wanted values of the main function, and adds them to `known`."""
        results = [value for value in dict.fromkeys(wanted) if value not in self.known]
        if not results:
            return
        available = list(self.known)
        main = function("main", available, _needed(operations, results, self.known), results)
        executable = self.compile([f for f in self.functions if f.attributes["sym_name"] != "main"], main, 1, 1)
        value = executable(*[self.known[v] for v in available])
        self.known |= dict(zip(results, value if len(results) != 1 else (value,), strict=True))

    def compile(self, functions: Sequence[Operation], main: Operation, replicas: int, partitions: int) -> Any:
        attributes = {
            **self.module.attributes,
            "mhlo.num_replicas": _i32(replicas),
            "mhlo.num_partitions": _i32(partitions),
        }
        whole = Operation(
            "builtin.module", [], [], attributes, [Region([Block([], [*functions, main])])], line=1, column=1
        )
        self.devices = [Device(i, timeout=5.0) for i in range(replicas * partitions)]
        return hl.compile(import_module(whole, self.text), backend=self.backend, devices=self.devices)

    def run_parallel(self, operation: Operation) -> None:
        """Runs one function on several devices; operands and results are those of all devices, one after another."""
        programs: Any = operation.attributes["programs"]
        names = {symbol.name for row in programs for symbol in row}
        if len(names) > 1:
            raise CheckFailed(f"devices run different programs: {', '.join(sorted(names))}")
        target = self.by_name[names.pop()]
        replicas, partitions = len(programs), len(programs[0])
        others = [f for f in self.functions if f.attributes["sym_name"] != "main" and f is not target]
        main, kept = without_tokens(target)
        executable = self.compile(others, main, replicas, partitions)
        self.feed(operation)
        operands = iter(operation.operands)
        arguments = []
        for _ in range(replicas * partitions):
            own = [next(operands) for _ in target.regions[0].block.arguments]
            arguments.append([self.known[v] for v in own if not _is_token(v)])
        values = executable.run_replicas(arguments)
        results = iter(operation.results)
        for value in values:
            leaves = iter(value if len([k for k in kept if k]) != 1 else (value,))
            for keep in kept:
                result = next(results)
                if keep:
                    self.known[result] = next(leaves)

    def feed(self, operation: Operation) -> None:
        """Appends the results of the functions that `infeed` names to the infeed queue."""
        queues: Any = operation.attributes.get("infeed") or []
        for symbol in queues:
            operations = self.by_name[symbol.name].regions[0].block.operations
            returned = operations[-1].operands
            values = Program(self.text, self.backend)
            values.evaluate(operations[:-1], returned)
            self.devices[0].transfer_to_infeed(tuple(values.known[value] for value in returned))

    # Checks

    def check(self, check: Operation) -> None:
        kind = str(check.attributes.get("call_target_name", check.name)).removeprefix("check.expect_")
        got = self.known[check.operands[0]]
        if kind.endswith("_const"):
            want = constant(check.attributes["value"])
        elif kind == "serialized_eq":
            return
        else:
            want = self.known[check.operands[1]]
        compare(kind.removesuffix("_const"), np.asarray(got), np.asarray(want), check.attributes)


def _forward_probes(operations: Sequence[Operation]) -> None:
    """Replaces probes by their operands."""
    passed: dict[Value, Value] = {}
    for operation in operations:
        operation.operands = [passed.get(value, value) for value in operation.operands]
        if operation.name == "interpreter.probe":
            passed[operation.results[0]] = operation.operands[0]
        for region in operation.regions:
            for block in region.blocks:
                _forward_probes(block.operations)
                block.operations = [op for op in block.operations if not op.name.startswith("interpreter.")]


def _needed(operations: Sequence[Operation], wanted: Sequence[Value], known: dict[Value, Array]) -> list[Operation]:
    """The ops that the wanted values depend on; if any op has regions, all ops that are not known."""
    if any(operation.regions for operation in operations):
        return [operation for operation in operations if not set(operation.results) & set(known)]
    needed, chosen = set(wanted), []
    for operation in reversed(operations):
        if needed & set(operation.results):
            chosen.append(operation)
            needed.update(operation.operands)
    return chosen[::-1]


def function(
    name: str, arguments: Sequence[Value], operations: Sequence[Operation], results: Sequence[Value]
) -> Operation:
    """Returns a function of MLIR with this body."""
    types = FunctionType(tuple(v.type for v in arguments), tuple(v.type for v in results))
    body = Block(list(arguments), [*operations, Operation("func.return", list(results))])
    return Operation(
        "func.func", [], [], {"sym_name": name, "function_type": types}, [Region([body])], line=1, column=1
    )


def without_tokens(target: Operation) -> tuple[Operation, list[bool]]:
    """Returns a copy of a function as main, with tokens created inside, and which of its results are not tokens."""
    block = target.regions[0].block
    tokens = [value for value in block.arguments if _is_token(value)]
    made = [Operation("stablehlo.create_token", [], [value]) for value in tokens]
    *body, last = block.operations
    kept = [not _is_token(value) for value in last.operands]
    arguments = [value for value in block.arguments if not _is_token(value)]
    results = [value for value, keep in zip(last.operands, kept, strict=True) if keep]
    return function("main", arguments, [*made, *body], results), kept


def _is_token(value: Value) -> bool:
    return isinstance(value.type, DialectType)


def _i32(value: int) -> Number:
    from hloom.stablehlo.mlir.types import I32

    return Number(value, I32)


def constant(value: Any) -> Array:
    assert isinstance(value, DenseElements)
    return value.values


def compare(kind: str, got: Array, want: Array, attributes: dict[str, Any]) -> None:
    """Raises CheckFailed if values differ more than a check allows."""
    if got.shape != want.shape or got.dtype != want.dtype:
        raise CheckFailed(f"{kind}: got {got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}")
    if got.dtype.kind == "c":
        for part in ("real", "imag"):
            compare(kind, getattr(got, part), getattr(want, part), attributes)
        return
    is_float = np.issubdtype(got.dtype, np.floating) or got.dtype.kind == "V" or "float" in got.dtype.name
    if kind == "eq" or not is_float:
        bad = got != want
        if is_float:
            bad &= ~((got != got) & (want != want))
    elif kind == "close":
        limit = _value(attributes.get("max_ulp_difference", 3))
        bad = ulps(got, want) > limit
    else:
        tolerance = _value(attributes.get("tolerance", 1e-4))
        np.seterr(invalid="ignore")
        wide, expected = got.astype(np.float64), want.astype(np.float64)
        bad = ~((np.abs(wide - expected) <= tolerance * 1.0000001) | (wide == expected))
        bad &= ~(np.isnan(wide) & np.isnan(expected))
    if bad.any():
        first = tuple(int(i) for i in np.argwhere(bad)[0])
        raise CheckFailed(
            f"{kind}: {int(bad.sum())} of {got.size} differ; at {first} got {got[first]}, not {want[first]}"
        )


def _value(attribute: Any) -> float:
    return float(attribute.value if isinstance(attribute, Number) else attribute)


def ulps(got: Array, want: Array) -> Array:
    """Returns the distance of values in ulps; 0 for two NaNs, infinity for one."""
    width = got.dtype.itemsize * 8
    ordered = []
    for array in (got, want):
        bits = np.ascontiguousarray(array).view(f"u{width // 8}").astype(object)
        sign = 1 << width - 1
        ordered.append(np.where(bits >= sign, sign - bits, bits))
    distance = np.abs(ordered[0] - ordered[1]).astype(np.float64)
    nan = [np.isnan(array.astype(np.float64)) for array in (got, want)]
    return np.where(nan[0] & nan[1], 0.0, np.where(nan[0] | nan[1], np.inf, distance))
