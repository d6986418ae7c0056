"""The programs, by family. Importing this package fills `benchmarks.program.PROGRAMS`."""

from benchmarks.programs import language, learning, numerics, physics, vision

__all__ = ["language", "learning", "numerics", "physics", "vision"]
