"""A page that shows a module: its graph, the effect of each pass, kernels down to assembly, memory, and a profile."""

from hloom.explorer.explore import explore

__all__ = ["explore"]
