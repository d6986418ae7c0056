"""The verifier of modules; `module.py` lists the invariants."""

from hloom.verifier.module import verify_module

__all__ = ["verify_module"]
