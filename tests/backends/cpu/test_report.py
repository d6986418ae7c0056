"""`executable.report()`: instructions that the host computes, in execution order."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hlo_text import interpreted, module_text


def report(entry: str) -> list[str]:
    return hl.compile(module_text(entry), backend="cpu").report()


@pytest.mark.parametrize(
    "entry",
    [
        "x = f32[4] parameter(0)\nROOT r = f32[4] sine(x)",
        "x = f32[4] parameter(0)\nt = (f32[4]) tuple(x)\nROOT r = (f32[4], (f32[4])) tuple(x, t)",
        "x = f32[4,4] parameter(0)\nROOT r = f32[4,4] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        "ROOT r = f32[2] constant({1, 2})",
    ],
)
def test_native_programs_call_nobody(entry: str) -> None:
    assert report(entry) == []


def test_the_interpreter_reports_nothing() -> None:
    text = module_text("x = f32[<=4] parameter(0)\nROOT r = f32[<=4] sine(x)")
    assert hl.compile(text, backend="interpreter").report() == []


def test_what_has_no_native_code_is_listed() -> None:
    lines = report(
        "x = c64[4194319] parameter(0)\ny = c64[4194319] negate(x)\n"
        "c = c64[4194319] fft(y), fft_type=FFT, fft_length={4194319}\n"
        'ROOT r = c64[4194319] custom-call(c), custom_call_target="nobody_knows"'
    )
    assert len(lines) == 2
    assert lines[0].startswith("%c = c64[4194319] fft(") and lines[1].startswith("%r = ")


def test_values_of_dynamic_sizes_are_not_the_hosts() -> None:
    text = module_text(
        "x = f32[6] parameter(0)\nn = s32[] parameter(1)\na = f32[6] sine(x)\n"
        "d = f32[<=6] set-dimension-size(a, n), dimensions={0}\nROOT r = f32[<=6] negate(d)"
    )
    executable = hl.compile(text, backend="cpu")
    assert executable.report() == []
    x = np.arange(6, dtype=np.float32)
    (want,) = interpreted(text, x, np.int32(4))
    np.testing.assert_allclose(executable(x, np.int32(4)), want, rtol=1e-6)


def test_errors_on_the_host_name_the_instruction() -> None:
    def fails(*_: object) -> None:
        raise hl.RunError("not today")

    hl.register_custom_call("fails_in_report_tests", fails)
    text = module_text(
        'x = f32[2] parameter(0)\nROOT r = f32[2] custom-call(x), custom_call_target="fails_in_report_tests"'
    )
    executable = hl.compile(text, backend="cpu")
    assert len(executable.report()) == 1
    with pytest.raises(hl.HloomError, match="not today\n.*%r = .*custom-call"):
        executable(np.ones(2, np.float32))
