"""Debug locations: the instructions that lines of LLVM IR and of assembly are for."""

from __future__ import annotations

import re

import pytest

import hloom as hl
from hloom.backends.cpu.codegen.emitter import ProgramEmitter
from hloom.backends.cpu.llvm.debug_locations import (
    DebugLocations,
    assembly_functions,
    ir_functions,
    with_debug_locations,
)
from hloom.backends.cpu.llvm.machine_code import assembly
from hloom.backends.cpu.pipeline import cpu_pipeline
from hloom.backends.cpu.program.buffer_assignment import assign_buffers
from hloom.backends.cpu.program.build_program import build_program
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
def emitted() -> tuple[list[str], DebugLocations]:
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
    texts = emitter.all_texts()
    return texts, {function.name: function.locations for function in emitter.functions.written.values()}


def lines_by_name(lines: str, mark: str) -> dict[str, list[str]]:
    """Returns the lines of each instruction."""
    found: dict[str, list[str]] = {}
    for line in lines.split("\n"):
        match = re.fullmatch(rf"(.*) {mark} %(\S+)", line)
        if match:
            found.setdefault(match[2], []).append(match[1].strip())
    return found


def test_lines_of_ir_name_their_instruction(emitted: tuple[list[str], DebugLocations]) -> None:
    texts, locations = emitted
    functions = {name: lines for text in texts for name, lines in ir_functions(text, locations).items()}
    (nest,) = [lines for name, lines in functions.items() if name.endswith(".merged") or "fdiv" in lines][-1:]
    names = lines_by_name(nest, ";")
    (layer,) = {name[-1] for name in names}
    assert any("fdiv" in line for line in names[f"weights{layer}"])
    assert not any("fdiv" in line for name, lines in names.items() if name != f"weights{layer}" for line in lines)
    assert any("fma" in line for line in names[f"exp{layer}"])
    assert any("fmaximum" in line for line in names[f"most{layer}"])
    assert any("fsub" in line for line in names[f"less{layer}"])
    assert any("load" in line for line in names[f"x{layer}"])


def test_lines_of_assembly_name_their_instruction(emitted: tuple[list[str], DebugLocations]) -> None:
    texts, locations = emitted
    names: dict[str, list[str]] = {}
    for text in texts:
        located, names_by_line = with_debug_locations(text, locations)
        for lines in assembly_functions(assembly(located), names_by_line).values():
            names |= lines_by_name(lines, "#")
    assert {name.rstrip("01") for name in names} >= {"most", "less", "exp", "total", "weights", "x"}
    divisions = [line for name, lines in names.items() if name.startswith("weights") for line in lines if "div" in line]
    assert divisions
    assert not any("div" in line for name, lines in names.items() if not name.startswith("weights") for line in lines)


def test_debug_locations_change_no_code(emitted: tuple[list[str], DebugLocations]) -> None:
    """Only the order of a prologue may differ: AArch64 describes frames where there is debug information."""
    texts, locations = emitted
    for text in texts:
        located, names_by_line = with_debug_locations(text, locations)
        with_locations = assembly_functions(assembly(located), names_by_line)
        without = assembly_functions(assembly(text), [""])
        assert with_locations.keys() == without.keys()
        for name, lines in with_locations.items():
            plain = [re.sub(r" +# %\S+$", "", line).expandtabs().split() for line in lines.split("\n")]
            assert sorted(plain) == sorted(line.split() for line in without[name].split("\n"))


def test_merged_functions_have_the_locations_of_their_first_member() -> None:
    """The merged function begins with loads of the constants that differ; what is left of the members is a call."""
    body = ["  %v = fadd float 1.0, 2.0", "  store float %v, ptr %b0", "  ret void", "}"]
    loads = ["  %constant0.at = getelementptr i64, ptr %constants, i64 0", "  %constant0 = load i64, ptr %constant0.at"]
    merged = ["define void @nest0.merged(ptr %b0, ptr %constants) {", "entry:", *loads, *body]
    member = [
        "define void @nest0(ptr %b0) {",
        "entry:",
        "  call void @nest0.merged(ptr %b0, ptr null)",
        "  ret void",
        "}",
    ]
    locations = {"nest0": ("", "", "sum", "result", "", "")}
    functions = ir_functions("\n".join([*member, *merged]), locations)
    assert functions["nest0"] == "\n".join(member)
    assert lines_by_name(functions["nest0.merged"], ";") == {"sum": [body[0].strip()], "result": [body[1].strip()]}
