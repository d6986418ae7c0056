"""Uncaught errors of hloom show the user's lines."""

from __future__ import annotations

import sys

import pytest

import hloom as hl


def test_uncaught_errors_show_the_lines_of_the_user_alone(capsys: pytest.CaptureFixture[str]) -> None:
    builder = hl.XlaBuilder("t")
    x, y = builder.parameter(0, hl.f32[4]), builder.parameter(1, hl.f32[2, 4])
    try:
        x * y
    except hl.RuleError as error:
        sys.excepthook(type(error), error, error.__traceback__)
        notebook = "\n".join(error._render_traceback_())  # type: ignore[attr-defined]
    shown = capsys.readouterr().err
    assert shown.startswith("Traceback (most recent call last):\n  File") and "\n    x * y\n" in shown
    assert shown.count("  File ") == 1 and "hloom.errors.RuleError: multiply[BC-3]: " in shown
    assert notebook == shown.rstrip("\n")


def test_other_errors_are_printed_whole(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        hl.f32[object()]
    except Exception as error:
        sys.excepthook(type(error), error, error.__traceback__)
        assert isinstance(error, hl.HloomError) or "shape.py" in capsys.readouterr().err
