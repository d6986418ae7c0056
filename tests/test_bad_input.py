"""Damaged text, protos, attributes and arguments: an hloom error or a valid module, in bounded time, nothing else."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
import pytest

import hloom as hl
from conftest import CORPUS
from generate import draw_case
from hloom.ops.operation import OPERATIONS
from hloom.proto import module_from_bytes, module_to_bytes
from hloom.text import parse_module
from mutate import mutate_bytes, mutate_text

CASES = int(os.environ.get("HLOOM_CASES", "24000"))
BLOCK = 1000
SECONDS = 20.0


def texts() -> list[str]:
    """Programs to damage: those of the corpus, and generated ones."""
    paths = sorted([*CORPUS.glob("*/module.hlo"), *CORPUS.glob("parse/*.hlo")])
    small = [path for path in paths if path.stat().st_size < 30_000]
    return [path.read_text() for path in small] + [draw_case(seed).computation.to_text() for seed in range(200)]


def outcome(text: str) -> str:
    """ "ok", or the class of the hloom error; any other exception passes through."""
    started = time.monotonic()
    try:
        module = parse_module(text)
    except hl.HloomError as error:
        assert str(error)
        return type(error).__name__
    finally:
        assert time.monotonic() - started < SECONDS
    assert parse_module(module.to_text()) is not None
    return "ok"


def damage_texts(first: int, count: int) -> dict[str, int]:
    programs, counts = texts(), dict[str, int]()
    for seed in range(first, first + count):
        rng = np.random.default_rng(seed)
        text = mutate_text(programs[seed % len(programs)], rng)
        try:
            kind = outcome(text)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
        counts[kind] = counts.get(kind, 0) + 1
    return counts


def damage_protos(first: int, count: int) -> None:
    contents = [module_to_bytes(draw_case(seed).computation.module) for seed in range(60)]
    for seed in range(first, first + count):
        rng = np.random.default_rng(seed)
        content = mutate_bytes(contents[seed % len(contents)], rng)
        try:
            module_from_bytes(content)
        except hl.HloomError:
            continue
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error


def odd_value(rng: np.random.Generator) -> Any:
    """Something that a careless caller might pass as an attribute or operand."""
    options: list[Any] = [
        None,
        -1,
        0,
        1,
        3,
        10**20,
        1.5,
        "x",
        "",
        b"x",
        (),
        [0],
        [-1],
        [0, 0],
        [1, 0],
        [9],
        [[0, 1]],
        [[0, 1, 1]],
        {},
        object(),
        True,
        float("nan"),
        hl.f32,
        hl.f32[2, 3],
        "SAME",
        np.zeros(3),
        np.array("a"),
        lambda *a: a[0] if a else 0,
        lambda: 1,
    ]
    return options[int(rng.integers(len(options)))]


def misuse_builder(first: int, count: int) -> None:
    methods = sorted(name for name in dir(hl.XlaBuilder) if not name.startswith("_"))
    for seed in range(first, first + count):
        rng = np.random.default_rng(seed)
        b = hl.XlaBuilder("misused")
        shapes = [hl.f32[2, 3], hl.f32[()], hl.s32[3], hl.pred[2, 3], hl.c64[2], hl.f32[4, 4], hl.u64[2]]
        ops = [b.parameter(i, shape) for i, shape in enumerate(shapes)]
        ops += [b.tuple(ops[0], ops[1]), b.after_all()]
        method = methods[seed % len(methods)]
        arguments = [
            ops[int(rng.integers(len(ops)))] if rng.random() < 0.6 else odd_value(rng)
            for _ in range(int(rng.integers(0, 7)))
        ]
        try:
            getattr(b, method)(*arguments)
        except hl.HloomError:
            continue
        except TypeError as error:
            # Python's own check of a call: too few or too many arguments.
            if "argument" in str(error) and f"{method}()" in str(error):
                continue
            raise AssertionError(f"seed {seed}: {method}{arguments}: TypeError: {error}") from error
        except Exception as error:
            raise AssertionError(f"seed {seed}: {method}{arguments}: {type(error).__name__}: {error}") from error


def test_some_damaged_texts_give_hloom_errors() -> None:
    counts = damage_texts(0, 300)
    assert counts["ParseError"] > 100


def test_some_damaged_protos_give_hloom_errors() -> None:
    damage_protos(0, 300)


def test_some_misused_builders_give_hloom_errors() -> None:
    misuse_builder(0, 600)


@pytest.mark.long
@pytest.mark.parametrize("first", range(10_000, 10_000 + CASES, BLOCK))
def test_damaged_texts_give_hloom_errors(first: int) -> None:
    damage_texts(first, min(BLOCK, CASES))


@pytest.mark.long
@pytest.mark.parametrize("first", range(10_000, 10_000 + CASES // 4, BLOCK))
def test_damaged_protos_give_hloom_errors(first: int) -> None:
    damage_protos(first, min(BLOCK, CASES // 4))


@pytest.mark.long
@pytest.mark.parametrize("first", range(10_000, 10_000 + CASES // 4, BLOCK))
def test_misused_builders_give_hloom_errors(first: int) -> None:
    misuse_builder(first, min(BLOCK, CASES // 4))


def test_every_operation_rejects_shapes_without_a_python_error() -> None:
    """Each declaration with default attributes on odd operands: RuleError or a shape."""
    shapes = [hl.f32[2, 3], hl.f32[()], hl.s32[0], hl.pred[2], hl.Shape.tuple_of([]), hl.Shape.tuple_of([hl.f32[2]])]
    shapes += [hl.parse("HloModule m\nENTRY e { ROOT t = token[] after-all() }").entry.result_shape]
    for opcode, declaration in OPERATIONS.items():
        if any(field.required for field in declaration.fields):
            continue
        op = declaration()
        for result in shapes:
            for count in range(4):
                for shape in shapes:
                    try:
                        op.check(result, *op.bind([shape] * count))
                    except hl.HloomError:
                        continue
                    except Exception as error:
                        raise AssertionError(f"{opcode} on {[shape] * count} -> {result}: {error!r}") from error
