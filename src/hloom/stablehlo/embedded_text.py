"""Programs with sizes that only a call knows, `tensor<?x3xf32>`: HLO modules that keep the text until these are given.

What StableHLO computes of sizes (dynamic_broadcast_in_dim and the like) has no HLO before that. Such a module is one
custom call with the program's interface; with the sizes of the parameters its text is imported as any other.
"""

from __future__ import annotations

import re

from hloom.ir import Computation, Instruction, Module
from hloom.ops.custom_call import CustomCall
from hloom.ops.structure import Parameter
from hloom.shape import Shape
from hloom.stablehlo.mlir.ir import FunctionType
from hloom.stablehlo.mlir.types import open_shape_of

TARGET = "hloom$stablehlo"


def embed_text(name: str, interface: FunctionType, text: str) -> Module:
    """The module that keeps the text of a program with this interface."""
    entry = Computation("main")
    parameters = [
        entry.add(Instruction(f"Arg_{i}", open_shape_of(type_), Parameter(number=i)))
        for i, type_ in enumerate(interface.inputs)
    ]
    results = [open_shape_of(type_) for type_ in interface.results]
    shape = results[0] if len(results) == 1 else Shape.tuple_of(results)
    program = entry.add(Instruction("program", shape, CustomCall(target_name=TARGET), parameters))
    program.backend_config = text
    module = Module(re.sub(r"[^\w.\-]", "_", name))
    module.add(entry, entry=True)
    module.set_default_entry_layouts()
    return module


def embedded_text(module: Module) -> str | None:
    """The text that a module keeps; None for any other module."""
    root = module.entry.root
    is_program = isinstance(root.op, CustomCall) and root.op.target_name == TARGET
    return root.backend_config if is_program else None
