"""The programs, by family. Importing this package registers them in `benchmarks.program.PROGRAMS`."""

from benchmarks.programs import language, learning, numerics, physics, vision

__all__ = ["language", "learning", "numerics", "physics", "vision"]
