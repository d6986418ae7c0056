"""Faults of XLA's CPU backend that random programs showed, and that nobody has reported publicly."""

from __future__ import annotations

from miscompilations.case import Case

CASES: list[Case] = []
