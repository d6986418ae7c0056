"""Comparison of results: one rule by which two results of a module are the same."""

from hloom.comparison.comparison import Comparison
from hloom.comparison.tolerance import Tolerance, tolerance_of

__all__ = ["Comparison", "Tolerance", "tolerance_of"]
