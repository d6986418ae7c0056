"""topk-calls: custom calls as topk."""

from __future__ import annotations

from typing import ClassVar

from hloom.ir import Instruction, Module
from hloom.ops.custom_call import TOP_K_TARGETS, CustomCall
from hloom.ops.sort import TopK
from hloom.passes.op_builder import OpBuilder, expand_each
from hloom.runtime.custom_calls.registry import REGISTERED, binding_of
from hloom.system.records import record


@record
class TopKCalls:
    """Before: custom-call(%x), custom_call_target="TopK", as XLA and JAX write it. After: topk(%x).

    Calls of targets that the user has registered are left alone.
    """

    name: ClassVar[str] = "topk-calls"
    operations: ClassVar[tuple[type, ...]] = (CustomCall,)

    def run(self, module: Module) -> int:
        """Replaces the calls; returns their number."""
        return expand_each(module, CustomCall, _called)


def _called(op: CustomCall, build: OpBuilder, old: Instruction, module: Module) -> Instruction | None:
    if op.target_name not in TOP_K_TARGETS - REGISTERED.keys():
        return None
    from hloom.runtime.custom_calls.standard_targets import TOP_K

    call = binding_of(old, TOP_K)
    return build(TopK(k=call.sizes["k"], largest=call.attributes["largest"]), old.operands[0], shape=old.shape)
