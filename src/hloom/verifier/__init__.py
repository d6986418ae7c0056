"""The verifier of modules: its invariants stand at the head of `module.py`."""

from hloom.verifier.module import verify_instruction, verify_module

__all__ = ["verify_instruction", "verify_module"]
