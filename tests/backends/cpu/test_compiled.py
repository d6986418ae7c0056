"""Compiled programs: the corpus, the specification's examples, and random programs against the interpreter."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hloom as hl
import test_corpus as corpus
import test_spec_examples as spec
from backends.cpu.fused_programs import draw_loops, draw_program
from backends.cpu.replica_programs import draw_replicas
from hloom.files.arrays import flat
from hloom.fuzz.grammar import draw_case
from hloom.fuzz.oracles import judged
from hloom.fuzz.reference import Reference
from hloom.fuzz.runner import run
from hloom.types import BY_DTYPE
from passes.simplify.test_algebraic_simplifier import MovesAndConstants

CASES = int(os.environ.get("HLOOM_CASES", "5000"))
BLOCK = 250

# The corpus


@pytest.mark.sampled(6)
@pytest.mark.parametrize("case", corpus.STORED, ids=lambda case: case.name)
def test_results_are_those_of_xla(case: Path) -> None:
    meta, module, inputs = corpus.load_case(case)
    corpus.check_results(case.name, meta, inputs, hl.compile(module, backend="cpu").run_replicas(inputs))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("path", corpus.OPTIMISED, ids=corpus.name_of)
def test_what_xla_has_optimised_gives_the_same_results(path: Path) -> None:
    meta, _, inputs = corpus.load_case(corpus.CORPUS / path.stem)
    corpus.check_results(path.stem, meta, inputs, hl.compile(hl.load(path), backend="cpu").run_replicas(inputs))


# The specification

RUNNABLE = [example for example in spec.EXAMPLES if example["op"] not in spec.SHAPE_OPS]


@pytest.mark.sampled(16)
@pytest.mark.parametrize("example", RUNNABLE, ids=[e["id"] for e in RUNNABLE])
def test_example(example: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs what test_spec_examples runs, but compiled."""
    monkeypatch.setattr(spec, "BACKEND", "cpu")
    spec.test_example(json.loads(json.dumps(example)))


# Random programs


def difference(got: Any, want: Any, rtol: float, atol: float) -> str | None:
    """Describes how results differ: NaN is like any NaN, zeros have their sign where there is no tolerance."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"is {got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}"
    element_type = BY_DTYPE[got.dtype]
    if not (element_type.is_float or element_type.is_complex):
        wrong = np.asarray(got != want)
    else:
        wide = np.complex128 if element_type.is_complex else np.float64
        g, w = got.astype(wide), want.astype(wide)
        parts = [(g.real, w.real), (g.imag, w.imag)] if element_type.is_complex else [(g, w)]
        near = np.abs(g - w) <= atol + rtol * np.abs(w)
        wrong = np.zeros(got.shape, bool)
        for a, b in parts:
            equal = a == b
            if not rtol and not atol:
                equal &= np.signbit(a) == np.signbit(b)
            wrong |= ~(equal | (np.isnan(a) & np.isnan(b)) | (near & np.isfinite(b)))
    if not wrong.any():
        return None
    at = tuple(int(i) for i in np.argwhere(wrong)[0]) if got.ndim else ()
    return (
        f"differs in {int(wrong.sum())} of {got.size} elements, first at {list(at)}: {got[at]!r}, expected {want[at]!r}"
    )


def check(module: hl.Module, inputs: list[Any], rtol: float = 0.0, atol: float = 0.0) -> str | None:
    """Describes how compiled results differ from the interpreter's, and those of a second run from the first's."""
    want = flat(hl.compile(module, backend="interpreter", seed=1)(*inputs))
    before = [np.array(x) for x in inputs]
    executable = hl.compile(module, backend="cpu", seed=1)
    got, again = flat(executable(*inputs)), flat(executable(*inputs))
    if len(got) != len(want):
        return f"has {len(got)} results, expected {len(want)}"
    for i, (g, w) in enumerate(zip(got, want)):
        if found := difference(g, w, rtol, atol):
            return f"result {i} {found}"
    for i, (g, w) in enumerate(zip(again, got)):
        if found := difference(g, w, 0.0, 0.0):
            return f"result {i} of a second run {found}"
    for i, (x, old) in enumerate(zip(inputs, before)):
        if np.asarray(x).tobytes() != old.tobytes():
            return f"input {i} was changed"
    return None


def check_case(seed: int) -> str | None:
    case = draw_case(seed)
    problem = judged(Reference(case), run(case))
    return problem and problem.message


def check_moves(seed: int) -> str | None:
    generator = MovesAndConstants(seed)
    module = generator.program()
    powers = any(i.opcode == "power" and i.shape.element_type.is_float for i in module.instructions())
    return check(module, generator.inputs, 1e-4 if powers else 0.0)


def check_fused(seed: int) -> str | None:
    return check(*draw_program(seed))


def check_loops(seed: int) -> str | None:
    return check(*draw_loops(seed))


def check_smooth(seed: int) -> str | None:
    """Inexact functions of bounded values: errors grow by small factors from step to step."""
    module, inputs = draw_program(seed, smooth=True)
    single = any(
        leaf.element_type is hl.f32 for i in module.instructions() for leaf in i.shape.leaves() if leaf.is_array
    )
    return check(module, inputs, *((3e-4, 3e-5) if single else (1e-10, 1e-10)))


def check_replicas(seed: int) -> str | None:
    module, arguments = draw_replicas(seed)
    want = hl.compile(module, backend="interpreter").run_replicas(arguments)
    got = hl.compile(module, backend="cpu").run_replicas(arguments)
    for replica, (mine, theirs) in enumerate(zip(got, want, strict=True)):
        for i, (g, w) in enumerate(zip(flat(mine), flat(theirs), strict=True)):
            if found := difference(g, w, 0.0, 0.0):
                return f"result {i} of replica {replica} {found}"
    return None


GENERATORS = {
    "case": check_case, "moves": check_moves, "fused": check_fused, "loops": check_loops, "smooth": check_smooth,
    "replicas": check_replicas,
}  # fmt: skip


def run_block(generator: str, first: int, count: int) -> None:
    wrong = []
    for seed in range(first, first + count):
        if found := GENERATORS[generator](seed):
            wrong.append(f"seed {seed}: {found}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("generator", GENERATORS)
def test_a_few_random_programs_agree_with_the_interpreter(generator: str) -> None:
    run_block(generator, 0, 12)


@pytest.mark.long
@pytest.mark.parametrize("generator", GENERATORS)
@pytest.mark.parametrize("first", range(1000, 1000 + CASES // len(GENERATORS), BLOCK))
def test_random_programs_agree_with_the_interpreter(generator: str, first: int) -> None:
    run_block(generator, first, min(BLOCK, 1000 + CASES // len(GENERATORS) - first))


def test_parts_of_long_sums_of_f16_do_not_overflow() -> None:
    """Parts are summed in f32, wherever in them the large numbers lie."""
    run = hl.compile(
        "HloModule m\nsum {\n  a = f16[] parameter(0)\n  b = f16[] parameter(1)\n  ROOT s = f16[] add(a, b)\n}\n"
        "ENTRY e {\n  x = f16[1048576] parameter(0)\n  zero = f16[] constant(0)\n"
        "  ROOT r = f16[] reduce(x, zero), dimensions={0}, to_apply=sum\n}\n"
    )
    x = np.tile(np.repeat(np.array([40000, -40000], np.float16), 32768), 16)
    assert run(x) == 0
