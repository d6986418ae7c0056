"""Tools that locate faults: extract instructions, reduce modules, and find the first difference or bad value."""

from hloom.comparison import Tolerance
from hloom.faults.bisect import FaultyPass, first_difference, first_faulty_pass
from hloom.faults.case import Case
from hloom.faults.check import Finding, check
from hloom.faults.graph_diff import diff
from hloom.faults.isolate import isolate
from hloom.faults.reduce import reduce

__all__ = [
    "Case",
    "FaultyPass",
    "Finding",
    "Tolerance",
    "check",
    "diff",
    "first_difference",
    "first_faulty_pass",
    "isolate",
    "reduce",
]
