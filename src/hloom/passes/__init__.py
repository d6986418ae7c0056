"""Passes: transformations from HLO to HLO, and the pipelines made of them. `hloom opt` runs them on a file."""

from hloom.passes.pipeline import (
    Pass,
    PassStatistics,
    Pipeline,
    clone_module,
    dump,
    is_watched,
    run_passes,
    statistics_text,
    totals,
)
from hloom.passes.registry import PASSES, PIPELINES, parse_passes, simplification_pipeline

__all__ = [
    "PASSES",
    "PIPELINES",
    "Pass",
    "PassStatistics",
    "Pipeline",
    "clone_module",
    "dump",
    "is_watched",
    "parse_passes",
    "run_passes",
    "simplification_pipeline",
    "statistics_text",
    "totals",
]
