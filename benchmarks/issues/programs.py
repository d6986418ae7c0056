"""All reports. Importing this module registers them."""

from benchmarks.issues import arrays, compilation, libraries, loops

__all__ = ["arrays", "compilation", "libraries", "loops"]
