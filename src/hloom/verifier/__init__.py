"""The verifier of modules; `module.py` lists the invariants."""

from hloom.verifier.module import verify_instruction, verify_module

__all__ = ["verify_instruction", "verify_module"]
