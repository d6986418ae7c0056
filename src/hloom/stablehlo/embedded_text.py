"""HLO modules that embed the text of a StableHLO program with unknown sizes, `tensor<?x3xf32>`.

Computations on sizes (dynamic_broadcast_in_dim and the like) have no HLO before the sizes are known. Such a program
becomes a module with one custom call, whose backend config is the text; once a call gives the parameters' sizes, the
text is imported for them (`importer.module.specialized_stablehlo`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hloom.ir import Computation, Instruction, Module
from hloom.ops.custom_call import CustomCall
from hloom.ops.rules import result_shape
from hloom.ops.structure import Parameter
from hloom.stablehlo.mlir.ir import FunctionType
from hloom.stablehlo.mlir.types import open_shape_of

TARGET = "hloom$stablehlo"
PROGRAM = "program"


def embed_text(name: str, interface: FunctionType, names: Sequence[str], text: str) -> Module:
    """Embeds the StableHLO text of a program in a module; `interface` has the types of parameters and results.

    Parameters have these names if they are all different.
    """
    if len({*names, PROGRAM}) <= len(names):
        names = [f"Arg_{i}" for i in range(len(names))]
    entry = Computation("main")
    parameters = [
        entry.add(Instruction(word, open_shape_of(type_), Parameter(number=i)))
        for i, (word, type_) in enumerate(zip(names, interface.inputs, strict=True))
    ]
    results = [open_shape_of(type_) for type_ in interface.results]
    shape = result_shape(results)
    program = entry.add(Instruction(PROGRAM, shape, CustomCall(target_name=TARGET), parameters))
    program.backend_config = text
    module = Module(re.sub(r"[^\w.\-]", "_", name))
    module.add(entry, entry=True)
    module.set_default_entry_layouts()
    return module


def embedded_text(module: Module) -> str | None:
    """The StableHLO text that a module embeds; None for any other module."""
    root = module.entry.root
    is_program = isinstance(root.op, CustomCall) and root.op.target_name == TARGET
    return root.backend_config if is_program else None
