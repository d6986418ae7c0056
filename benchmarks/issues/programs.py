"""All reports, in the order of the page. Importing this module registers them."""

from benchmarks.issues import arrays, loops

__all__ = ["arrays", "loops"]
