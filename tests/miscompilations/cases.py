"""All known miscompilations."""

from __future__ import annotations

from miscompilations import found_by_fuzzing, inverses
from miscompilations.case import Case

CASES: list[Case] = [*inverses.CASES, *found_by_fuzzing.CASES]
