"""Ahead-of-time compilation: modules as a library with a C interface, which needs no Python.

    build({"predict": module}, "out", target="x86-64-v3")

Prior art: XLA's tfcompile; the AOT functions of Halide, whose pipelines become an object file and a header.
"""

from hloom.aot.library import Emit, Library, build, single_page

__all__ = ["Emit", "Library", "build", "single_page"]
