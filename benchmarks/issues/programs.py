"""All reports. Importing this module registers those with programs; others are listed here, with the reason."""

from benchmarks.issues import arrays, compilation, libraries, loops
from benchmarks.issues.issue import JAX, UNMEASURED, XLA, Issue

__all__ = ["arrays", "compilation", "libraries", "loops"]

NOT_FOUND = "no thread of this number was found"

UNMEASURED += [
    Issue(JAX, 5022, reason=NOT_FOUND),
    Issue(JAX, 11321, reason=NOT_FOUND),
    Issue(JAX, 17640, reason=NOT_FOUND),
    Issue(JAX, 20500, reason="one computer is slower than another"),
    Issue(JAX, 29499, reason="how many processors are busy, rather than how long a program runs"),
    Issue(JAX, 33761, reason="on macOS only"),
    Issue(XLA, 19716, reason=NOT_FOUND),
    Issue(XLA, 46351, reason="the cause of jax 37465"),
]
