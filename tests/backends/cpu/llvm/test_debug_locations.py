"""Debug locations: the instructions that lines of LLVM IR and of assembly are for."""

from __future__ import annotations

import re

import pytest

import hloom as hl
from hloom.backends.cpu.codegen.emitter import ProgramEmitter
from hloom.backends.cpu.codegen.merge_functions import MIN_LENGTH, merge_functions
from hloom.backends.cpu.codegen.modules import Merging, Unit, module_of_units
from hloom.backends.cpu.llvm.debug_locations import (
    assembly_functions,
    ir_functions,
    with_debug_locations,
)
from hloom.backends.cpu.llvm.machine_code import assembly
from hloom.backends.cpu.pipeline import cpu_pipeline
from hloom.backends.cpu.program.buffer_assignment import assign_buffers
from hloom.backends.cpu.program.build_program import build_program
from hloom.lir import I64, PTR, Builder, Function, LirModule, Parameter, Value, constant
from hloom.passes import run_passes
from hloom.target import Target

SOFTMAX = """
  most{k} = f32[{n}] reduce(x{k}, least), dimensions={{1}}, to_apply=max
  mosts{k} = f32[{n},{m}] broadcast(most{k}), dimensions={{0}}
  less{k} = f32[{n},{m}] subtract(x{k}, mosts{k})
  exp{k} = f32[{n},{m}] exponential(less{k})
  total{k} = f32[{n}] reduce(exp{k}, zero), dimensions={{1}}, to_apply=sum
  totals{k} = f32[{n},{m}] broadcast(total{k}), dimensions={{0}}
  weights{k} = f32[{n},{m}] divide(exp{k}, totals{k})
"""
SIZES = ((64, 256), (96, 512))


@pytest.fixture(scope="module")
def emitted() -> list[LirModule]:
    layers = "".join(SOFTMAX.format(k=k, n=n, m=m) for k, (n, m) in enumerate(SIZES))
    shapes = [f"f32[{n},{m}]" for n, m in SIZES]
    parameters = "".join(f"  x{k} = {shape} parameter({k})\n" for k, shape in enumerate(shapes))
    module = hl.parse(f"""HloModule m
max {{ a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT m = f32[] maximum(a, b) }}
sum {{ a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }}
ENTRY e {{ {parameters}
  least = f32[] constant(-inf)
  zero = f32[] constant(0) {layers}
  ROOT both = ({", ".join(shapes)}) tuple(weights0, weights1) }}""")
    run_passes(module, cpu_pipeline())
    program = build_program(module, Target(32, 2))
    emitter = ProgramEmitter(program, assign_buffers(program), 32, has_locations=True)
    return emitter.all_modules()


def lines_by_name(lines: str, mark: str) -> dict[str, list[str]]:
    """Returns the lines of each instruction."""
    found: dict[str, list[str]] = {}
    for line in lines.split("\n"):
        match = re.fullmatch(rf"(.*) {mark} %(\S+)", line)
        if match:
            found.setdefault(match[2], []).append(match[1].strip())
    return found


def test_lines_of_ir_name_their_instruction(emitted: list[LirModule]) -> None:
    functions = {name: lines for module in emitted for name, lines in ir_functions(module).items()}
    (nest,) = [lines for name, lines in functions.items() if name.endswith(".merged") or "fdiv" in lines][-1:]
    names = lines_by_name(nest, ";")
    (layer,) = {name[-1] for name in names}
    assert any("fdiv" in line for line in names[f"weights{layer}"])
    assert not any("fdiv" in line for name, lines in names.items() if name != f"weights{layer}" for line in lines)
    assert any("fma" in line or "fmul" in line for line in names[f"exp{layer}"])
    assert any("maximum" in line for line in names[f"most{layer}"])
    assert any("fsub" in line for line in names[f"less{layer}"])
    assert any("load" in line for line in names[f"x{layer}"])


def test_lines_of_assembly_name_their_instruction(emitted: list[LirModule]) -> None:
    names: dict[str, list[str]] = {}
    for module in emitted:
        located, names_by_line = with_debug_locations(module)
        for lines in assembly_functions(assembly(located), names_by_line).values():
            names |= lines_by_name(lines, "#")
    assert {name.rstrip("01") for name in names} >= {"most", "less", "exp", "total", "weights", "x"}
    divisions = [line for name, lines in names.items() if name.startswith("weights") for line in lines if "div" in line]
    assert divisions
    assert not any("div" in line for name, lines in names.items() if not name.startswith("weights") for line in lines)


def test_debug_locations_change_no_code(emitted: list[LirModule]) -> None:
    """Only the order of a prologue may differ: AArch64 describes frames where there is debug information."""
    for module in emitted:
        located, names_by_line = with_debug_locations(module)
        with_locations = assembly_functions(assembly(located), names_by_line)
        without = assembly_functions(assembly(module.text()), [""])
        assert with_locations.keys() == without.keys()
        for name, lines in with_locations.items():
            plain = [re.sub(r" +# %\S+$", "", line).expandtabs().split() for line in lines.split("\n")]
            assert sorted(plain) == sorted(line.split() for line in without[name].split("\n"))


def test_merged_functions_have_the_locations_of_their_first_member() -> None:
    """The merged function begins with loads of the constants that differ; what is left of the members is a call."""

    def member(name: str, size: int) -> Unit:
        b = Builder(Function(name, [Parameter("b0", PTR)]))
        total: Value = constant(I64, size)
        for _ in range(MIN_LENGTH):
            total = b.binary("add", total, constant(I64, size))
        b.store(total, b.function.parameters[0], 8)
        b.function.locations |= dict.fromkeys(range(MIN_LENGTH), "sum") | {MIN_LENGTH: "result"}
        return Unit([b.finish()], Merging(max_constants=1, divisors=False))

    first, _, merged = merge_functions([member("nest0", 3), member("nest1", 5)])
    (call,) = ir_functions(module_of_units([first])).values()
    assert " ; " not in call
    (text,) = ir_functions(module_of_units([merged])).values()
    names = lines_by_name(text, ";")
    assert [len(names["sum"]), len(names["result"])] == [MIN_LENGTH, 1]
    assert names["result"][0].startswith("store i64 ")
