"""A page that shows a module: its graph, what each pass did, kernels down to assembly, memory, and a run's profile."""

from hloom.explorer.explore import explore

__all__ = ["explore"]
