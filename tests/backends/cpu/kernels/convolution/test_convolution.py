"""Convolution kernels against the interpreter: windows, groups, dimension orders, types, vectors, threads.

Operands are small integers, so that every sum is exact in any order, and end at an inaccessible page.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, replace

import numpy as np
import pytest

import hloom as hl
from backends.cpu.kernels.products.test_matmul import guarded
from backends.cpu.kernels.run_kernel import Array, Kernel, assert_same, interpreted
from hloom.backends.cpu.kernels.convolution import convolution
from hloom.backends.cpu.kernels.convolution.form import normal_form
from hloom.backends.cpu.kernels.convolution.geometry import Mode
from hloom.backends.cpu.kernels.convolution.plan import ConvolutionPlan, make_plan
from hloom.lir import Function, type_of
from hloom.lir.function import needs_of
from hloom.ops.attributes import WindowDimension
from hloom.ops.convolution import Convolution
from hloom.target import Target

CASES = int(os.environ.get("HLOOM_CASES", "1000"))
TYPES = [
    *(f"{t} {t} {t}" for t in ("f32", "f64", "bf16", "f16", "c64", "c128", "s8", "u8", "s16", "s32", "u32", "s64")),
    "s8 s8 s32", "u8 s8 s32", "bf16 bf16 f32", "f16 f32 f32", "f32 f64 f64", "c64 c64 c128",
]  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A convolution: `sizes` of the input along its spatial axes, and features of a group."""

    window: tuple[WindowDimension, ...]
    sizes: tuple[int, ...]
    labels: tuple[str, str, str]
    batch: int = 2
    inputs: int = 3
    outputs: int = 4
    groups: int = 1
    batch_groups: int = 1
    types: str = "f32 f32 f32"

    def text(self) -> str:
        lhs, rhs, out = self.types.split()
        input_sizes = {"b": self.batch * self.batch_groups, "f": self.inputs * self.groups}
        kernel_sizes = {"i": self.inputs, "o": self.outputs * self.groups * self.batch_groups}
        output_sizes = {"b": self.batch, "f": kernel_sizes["o"]}
        for d, (window, size) in enumerate(zip(self.window, self.sizes)):
            input_sizes[str(d)], kernel_sizes[str(d)], output_sizes[str(d)] = size, window.size, window.count(size)
        shapes = [
            f"{type}[{','.join(str(sizes[label]) for label in labels)}]"
            for type, sizes, labels in zip(
                (lhs, rhs, out), (input_sizes, kernel_sizes, output_sizes), self.labels, strict=True
            )
        ]
        labels = f"{self.labels[0]}_{self.labels[1]}->{self.labels[2]}"
        groups = f"feature_group_count={self.groups}, batch_group_count={self.batch_groups}"
        return (
            f"HloModule m\nENTRY e {{\n  l = {shapes[0]} parameter(0)\n  r = {shapes[1]} parameter(1)\n"
            f"  ROOT c = {shapes[2]} convolution(l, r){self.window_text()}, dim_labels={labels}, {groups}\n}}"
        )

    def window_text(self) -> str:
        if not self.window:
            return ""
        fields = {
            "size": [str(d.size) for d in self.window],
            "stride": [str(d.stride) for d in self.window],
            "pad": [f"{d.padding_low}_{d.padding_high}" for d in self.window],
            "lhs_dilate": [str(d.base_dilation) for d in self.window],
            "rhs_dilate": [str(d.window_dilation) for d in self.window],
            "rhs_reversal": [str(int(d.window_reversal)) for d in self.window],
        }
        return ", window={" + " ".join(f"{key}={'x'.join(values)}" for key, values in fields.items()) + "}"


def operands(text: str, seed: int = 0) -> list[Array]:
    """Returns arrays of small integers, each in memory that ends at a page boundary."""
    generator = np.random.default_rng(seed)
    arrays = []
    for parameter in hl.parse(text).entry.parameters:
        type, sizes = parameter.shape.element_type, parameter.shape.dimensions
        values = generator.integers(0 if str(type)[0] == "u" else -4, 5, sizes)
        if type.is_complex:
            values = values + 1j * generator.integers(-4, 5, sizes)
        array = guarded(values.size, str(type)).reshape(sizes)
        array[...] = values.astype(type.dtype)
        arrays.append(array)
    return arrays


def check(case: Case, threads: int = 1, vector_bytes: int = 64) -> None:
    text = case.text()
    arrays = operands(text)
    with np.errstate(all="ignore"):
        assert_same(Kernel(convolution.emit, text, threads, vector_bytes)(*arrays), interpreted(text, *arrays))


def last(rank: int) -> tuple[str, str, str]:
    """Features last: NHWC and HWIO."""
    spatial = "".join(map(str, range(rank)))
    return f"b{spatial}f", f"{spatial}io", f"b{spatial}f"


def first(rank: int) -> tuple[str, str, str]:
    """Features first: NCHW and OIHW."""
    spatial = "".join(map(str, range(rank)))
    return f"bf{spatial}", f"oi{spatial}", f"bf{spatial}"


def random_window(choose: random.Random) -> tuple[WindowDimension, int]:
    """Draws one dimension of a window, and the size of an input that gives it some positions."""
    dimension = WindowDimension(
        choose.choice([1, 2, 3, 3, 5, 7]),
        choose.choice([1, 1, 1, 2, 3]),
        choose.choice([0, 0, 1, 1, 2, 5, -1]),
        choose.choice([0, 0, 1, 1, 2, 5, -1]),
        choose.choice([1, 1, 1, 2, 3]),
        choose.choice([1, 1, 1, 2, 3, 4]),
        choose.random() < 0.2,
    )
    sizes = [n for n in (1, 2, 4, 5, 8, 9, 14, 19, 33) if 1 <= dimension.count(n) <= 40]
    return dimension, choose.choice(sizes or [dimension.dilated_size + 2])


def random_case(seed: int) -> Case:
    choose = random.Random(seed)
    rank = choose.choice([0, 1, 1, 2, 2, 2, 2, 3, 4])
    pairs = [random_window(choose) for _ in range(rank)]
    spatial = "".join(map(str, range(rank)))
    if choose.random() < 0.5:
        labels = choose.choice([last(rank), first(rank)])
    else:
        labels = tuple("".join(choose.sample(names + spatial, rank + 2)) for names in ("bf", "io", "bf"))
    groups, batch_groups = choose.choice([(1, 1), (1, 1), (1, 1), (2, 1), (1, 3), (5, 1), (19, 1), (1, 17)])
    small = groups * batch_groups > 4
    return Case(
        tuple(d for d, _ in pairs),
        tuple(n for _, n in pairs),
        labels,
        choose.choice([1, 2, 3, 17]),
        choose.choice([1, 1, 2] if small else [1, 2, 3, 7, 16, 33]),
        choose.choice([1, 1, 2, 4] if small else [1, 2, 3, 8, 17, 40]),
        groups,
        batch_groups,
        choose.choice(TYPES) if choose.random() < 0.5 else "f32 f32 f32",
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(40))
def test_any_convolution_is_the_interpreters(seed: int) -> None:
    check(random_case(seed), threads=1 + seed % 2, vector_bytes=(16, 32, 64)[seed % 3])


@pytest.mark.long
def test_many_convolutions_are_the_interpreters() -> None:
    for seed in range(40, 40 + CASES):
        check(random_case(seed), threads=1 + seed % 3, vector_bytes=(16, 32, 64)[seed % 3])


# Large ones, of each kind of plan


def plan_of(case: Case, threads: int = 2) -> ConvolutionPlan:
    root = hl.parse(case.text()).entry.root
    assert isinstance(root.op, Convolution)
    return make_plan(normal_form(root.op, root), type_of("float", 16), Target(64, threads))


SAME = WindowDimension(3, 1, 1, 1)
HALVED = WindowDimension(3, 2, 0, 1)
DOUBLED = WindowDimension(3, 1, 1, 2, 1, 2)
GRADIENT = ("f01b", "i01o", "01bf")
LARGE = {
    "features last": Case((SAME, SAME), (30, 28), last(2), 3, 32, 40),
    "features first": Case((SAME, SAME), (30, 28), first(2), 3, 32, 40),
    "strided": Case((HALVED, HALVED), (57, 56), last(2), 3, 16, 24),
    "strided, features first": Case((HALVED, HALVED), (57, 56), first(2), 3, 16, 24),
    "dilated base": Case((DOUBLED, DOUBLED), (21, 20), last(2), 3, 16, 24),
    "dilated base, features first": Case((DOUBLED, DOUBLED), (21, 20), first(2), 3, 16, 24),
    "several passes": Case((SAME, SAME), (130, 130), last(2), 5, 8, 4),
    "several blocks of K": Case((SAME, SAME), (9, 8), last(2), 3, 520, 100),
    "many output features": Case((SAME, SAME), (5, 5), first(2), 2, 260, 390),
    "gradient of the kernel": Case((WindowDimension(40, 1, 1, 1), WindowDimension(36, 1, 1, 1)), (40, 36), GRADIENT, 24, 5, 40),
    "gradient of a strided kernel": Case(
        (WindowDimension(20, 1, 0, 1, 2), WindowDimension(18, 1, 0, 1, 2)), (40, 36), GRADIENT, 24, 5, 40
    ),
    "few features": Case((WindowDimension(7, 2, 3, 3),) * 2, (64, 60), last(2), 2, 3, 40),
    "depthwise": Case((SAME, SAME), (30, 28), last(2), 3, 1, 1, groups=70),
    "depthwise, features first": Case((SAME, SAME), (30, 28), first(2), 3, 1, 1, groups=70),
    "depthwise, several outputs": Case((SAME, SAME), (30, 28), last(2), 3, 1, 3, groups=40),
    "gradient of a depthwise kernel": Case((WindowDimension(28, 1, 1, 1),) * 2, (28, 28), GRADIENT, 1, 6, 1, batch_groups=70),
    "groups": Case((SAME, SAME), (30, 28), last(2), 3, 4, 4, groups=16),
    "long window": Case((WindowDimension(400, 160, 40, 40),), (16000,), last(1), 3, 1, 20),
    "three axes": Case((SAME, HALVED, SAME), (9, 18, 17), first(3), 2, 9, 17),
}  # fmt: skip


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", LARGE.values(), ids=LARGE)
def test_large_convolutions(case: Case) -> None:
    check(case, threads=2)


def test_plans_of_every_kind_are_met() -> None:
    plans = {name: plan_of(case) for name, case in LARGE.items()}
    assert {plan.geometry.mode for plan in plans.values()} == {*Mode}
    assert {plan.geometry.flat for plan in plans.values()} >= {0, 1, 2}
    assert {len(plan.classes) for plan in plans.values()} >= {1, 4}
    assert {plan.geometry.run.taps > 1 for plan in plans.values()} == {True, False}
    assert {plan.has_partial_sums for plan in plans.values()} == {True, False}
    assert {plan.has_panels_outermost for plan in plans.values()} == {True, False}
    assert {plan.images < plan.geometry.images for plan in plans.values()} == {True, False}


# Promises


def test_offsets_are_data_rather_than_code() -> None:
    """The text of the code does not become longer with the window."""
    few, many = (replace(LARGE[name], inputs=64) for name in ("gradient of a strided kernel", "gradient of the kernel"))
    assert plan_of(many).table_length == 4 * plan_of(few).table_length == 1440
    short, long = (len(Kernel(convolution.emit, case.text()).text) for case in (few, many))
    assert long < 1.1 * short < 50_000


def shared_names(case: Case) -> set[str]:
    """Returns the functions that a convolution shares with others; checks that it has two of its own."""
    root = hl.parse(case.text()).entry.root
    assert isinstance(root.op, Convolution)
    code = convolution.emit(root.op, "kernel", root, Target(64, 2))
    assert code is not None and {function.name for function in code.functions} == {"kernel", "kernel.task"}
    return {name for name, need in needs_of(code.functions).items() if isinstance(need, Function) and need.is_shared}


@pytest.mark.parametrize(
    "name", ["features last", "strided, features first", "dilated base", "depthwise, several outputs", "three axes"]
)
def test_convolutions_of_other_sizes_have_the_same_code(name: str) -> None:
    case = LARGE[name]
    other = replace(case, batch=5, sizes=tuple(size + 16 for size in case.sizes))
    names = shared_names(case)
    assert {name.split(".")[1] for name in names} >= {"copy", "pack", "store"} and len(names) == 4
    assert {name for name in names if name.split(".")[1] in ("copy", "pack", "store")} <= shared_names(other)


def test_the_number_of_threads_does_not_change_a_bit() -> None:
    case = LARGE["several blocks of K"]
    arrays = [a + np.float32(0.1) for a in operands(case.text())]
    results = [Kernel(convolution.emit, case.text(), threads)(*arrays)[0].tobytes() for threads in (1, 2, 3)]
    assert len(set(results)) == 1


@pytest.mark.parametrize("case", [
    Case((SAME,), (0,), last(1)),
    Case((WindowDimension(1, 1, 3, 2),), (0,), last(1)),
    Case((SAME,), (8,), first(1), batch=0),
    Case((SAME,), (8,), first(1), inputs=0),
    Case((WindowDimension(1, 2, 1, 0, 1, 2),), (1,), last(1)),
], ids=["no positions", "padding alone", "no batch", "no features", "no taps"])  # fmt: skip
def test_empty_ones_are_zeros_or_nothing(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("types", ["f32 f32 c64", "f8e5m2 f8e5m2 f32", "f64 f64 f16", "s4 s4 s4"])
def test_types_without_code_are_left_to_the_host(types: str) -> None:
    instruction = hl.parse(Case((SAME,), (8,), last(1), types=types).text()).entry.root
    assert isinstance(instruction.op, Convolution)
    assert convolution.emit(instruction.op, "kernel", instruction, Target(64, 1)) is None
