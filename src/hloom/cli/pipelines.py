"""Parses pipelines, and prints the stages of a compilation."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hloom.ir import Module
    from hloom.passes import Pass, Pipeline

STAGES = ("hlo", "loops", "llvm", "asm")


def pipeline_named(text: str) -> Pass | Pipeline:
    """Parses a pipeline as `parse_passes` does, with the passes of the CPU backend; `cpu` is its pipeline."""
    from hloom.backends.cpu.pipeline import Topology, cpu_pipeline, targeted_passes
    from hloom.passes import parse_passes

    return cpu_pipeline(Topology.SINGLE) if text.strip() == "cpu" else parse_passes(text, targeted_passes())


def stage_text(module: Module, stage: str) -> str:
    """A stage of the compilation for the CPU: steps with their loop nests, LLVM IR, or assembly."""
    from hloom.backends.cpu.codegen.emitter import emit_program
    from hloom.backends.cpu.compiler import host_target
    from hloom.backends.cpu.llvm.machine_code import assembly
    from hloom.backends.cpu.program.buffer_assignment import assign_buffers
    from hloom.backends.cpu.program.build_program import build_program
    from hloom.backends.cpu.program.program_text import program_text
    from hloom.passes import clone_module, run_passes

    work = clone_module(module)
    run_passes(work, pipeline_named("cpu"))
    target = host_target()
    program = build_program(work, target)
    assignment = assign_buffers(program, donate=False)
    if stage == "loops":
        return f"{program_text(program, assignment)}\n"
    texts = emit_program(program, assignment, target.vector_bytes)
    return "\n".join(texts if stage == "llvm" else map(assembly, texts))
