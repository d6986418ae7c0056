"""Functions that a nest applies many times are calls of a shared function, with the results of inline code."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hloom.backends.cpu.elements import called_functions
from hloom.backends.cpu.nests.emitter import emit_nest
from hloom.lir import Function
from hloom.lir.instructions import Call
from hloom.loops.lower import lower
from hloom.loops.schedule import schedule
from hloom.target import Target


def chain(opcode: str, length: int, size: int = 1000, type: str = "f32", second: str = "") -> str:
    """Returns a fusion that applies a function `length` times, with a second operand x or c, a constant."""
    shape = f"{type}[{size}]"
    lines = [f"  v{k + 1} = {shape} {opcode}(v{k}{second})" for k in range(length)]
    body = "\n".join(lines).replace(f"  v{length} =", f"  ROOT v{length} =")
    return f"""HloModule m
fused {{
  v0 = {shape} parameter(0)
  x = {shape} parameter(1)
  one = {type}[] constant(1.25)
  c = {shape} broadcast(one), dimensions={{}}
{body}
}}
ENTRY e {{
  a = {shape} parameter(0)
  b = {shape} parameter(1)
  ROOT r = {shape} fusion(a, b), kind=kLoop, calls=fused
}}"""


def emitted(text: str) -> Function:
    kernel = lower(hl.parse(text).entry.root).kernel
    schedule(kernel, Target(vector_bytes=64, threads=1))
    return emit_nest("nest", kernel, kernel.nests[0], vector_bytes=64)[0]


def called(text: str) -> set[str]:
    """Returns the names of the shared functions that the nest calls."""
    function = emitted(text)
    names = {str(call.operands[0]).split("@")[-1] for call in function.body if isinstance(call, Call)}
    return {name for name in names if isinstance(function.needs.get(name), Function)}


def test_a_function_applied_four_times_is_called() -> None:
    assert len(called(chain("tanh", 4))) == 1
    assert not called(chain("tanh", 3))


def test_short_functions_and_those_of_constants_are_inline() -> None:
    assert not called(chain("sqrt", 20))
    assert not called(chain("power", 8, second=", c"))
    assert called(chain("power", 8, second=", x"))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("size", [1, 7, 16, 1000])
@pytest.mark.parametrize("type", ["f32", "f64", "f16", "bf16", "f8e4m3fn"])
@pytest.mark.parametrize("opcode, second", [("sine", ""), ("tan", ""), ("erf", ""), ("power", ", x")])
def test_calls_have_the_results_of_inline_code(
    opcode: str, second: str, type: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dtype = getattr(hl, type).dtype
    a, b = (np.linspace(low, high, size).astype(dtype) for low, high in ((0.1, 5), (-1, 1)))
    text = chain(opcode, 5, size, type, second)
    monkeypatch.setenv("HLOOM_CACHE_DIR", "")  # whose programs are found by their text
    calls = hl.compile(text)(a, b)
    monkeypatch.setattr(called_functions, "MIN_CALLS", 100)
    np.testing.assert_array_equal(calls.view(f"u{dtype.itemsize}"), hl.compile(text)(a, b).view(f"u{dtype.itemsize}"))


def test_large_and_special_operands_of_calls() -> None:
    x = np.array([1e30, -np.inf, np.nan, 0.0, -0.0, 3e5] * 11, np.float32)
    text = chain("cosine", 4, 66)
    with np.errstate(invalid="ignore"):
        expected = hl.compile(text, backend="interpreter")(x, x)
    np.testing.assert_allclose(hl.compile(text)(x, x), expected, rtol=1e-5)
