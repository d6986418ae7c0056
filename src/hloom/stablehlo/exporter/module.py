"""Export of HLO modules to StableHLO text.

Operations are converted by their row in `stablehlo/operations.py` or, if operands or results do not correspond one to
one, by a function of `rules.py`. This file has the rest: functions, regions, and attributes of the module.

The result has no tuples. The value of an instruction is the list of its leaves, thus tuple and get-tuple-element become
no operations; a parameter or result that is a tuple becomes one for each leaf, in order, as in XLA's own conversion.
Layouts inside the module, schedules and control dependencies are dropped: StableHLO has none, and they do not change
results.
"""

from __future__ import annotations

from hloom.ir import Computation, Module, callees_first, flatten
from hloom.stablehlo.embedded_text import embedded_text
from hloom.stablehlo.exporter.block import (
    BlockExporter,
    layout_attribute,
    leaf_count,
    leaf_range,
    leaf_shardings,
)
from hloom.stablehlo.exporter.locations import Locations
from hloom.stablehlo.mlir.ir import (
    Attribute,
    Block,
    Operation,
    Region,
)
from hloom.stablehlo.mlir.text import parse_mlir, print_mlir
from hloom.stablehlo.mlir.types import i32
from hloom.text.sharding import sharding_text


def print_stablehlo(module: Module, *, locations: bool = True) -> str:
    """The StableHLO text of a module, which JAX and other XLA front ends read.

    `locations` writes metadata as MLIR locations. Parameters and results that are tuples become one parameter or result
    for each leaf. A module that embeds StableHLO text (`stablehlo/embedded_text.py`) gives that text, with meshes and
    functions that are only declared. Raises ArgumentError, with the instruction, for operations and attributes that
    StableHLO cannot express, ParseError for embedded text that cannot be parsed.
    """
    text = embedded_text(module)
    if text is None:
        return print_mlir(_ModuleExporter(module, locations).export())
    parse_mlir(text)
    return text


class _ModuleExporter:
    def __init__(self, module: Module, locations: bool) -> None:
        self.module = module
        self.locations = Locations(module.stack_frames) if locations else None
        self.names: dict[int, str] = {id(module.entry): "main"}
        self.functions: dict[int, Operation] = {}

    def export(self) -> Operation:
        entry = self.function(self.module.entry, "public")
        self._entry_attributes(entry)
        # The entry comes first, then callers before their callees.
        order = [id(c) for c in reversed(callees_first(self.module.entry)) if id(c) in self.functions]
        block = Block([], [entry, *(self.functions[key] for key in order)])
        return Operation("builtin.module", attributes=self._module_attributes(), regions=[Region([block])])

    # Functions

    def function(self, computation: Computation, visibility: str) -> Operation:
        """Exports a computation as `func.func`, with an argument for each leaf of its parameters."""
        exporter = BlockExporter(self)
        exporter.take_parameters(computation)
        exporter.body(computation, "func.return")
        return Operation(
            "func.func",
            attributes={"sym_name": self.names[id(computation)], "sym_visibility": visibility},
            regions=[Region([exporter.block])],
        )

    def symbol(self, computation: Computation) -> str:
        """The name of the function that a computation becomes; exports the function at the first call."""
        if id(computation) not in self.names:
            taken, name, count = set(self.names.values()), computation.name, 0
            while name in taken:
                name, count = f"{computation.name}_{count}", count + 1
            self.names[id(computation)] = name
            self.functions[id(computation)] = self.function(computation, "private")
        return self.names[id(computation)]

    # Attributes of the module and of its entry

    def _module_attributes(self) -> dict[str, Attribute]:
        module = self.module
        attributes: dict[str, Attribute] = {
            "sym_name": module.name,
            "mhlo.num_partitions": i32(module.num_partitions),
            "mhlo.num_replicas": i32(module.replica_count),
        }
        if module.frontend_attributes:
            attributes["mhlo.frontend_attributes"] = dict(module.frontend_attributes)
        parameters = flatten(module.entry_parameter_layouts or module.entry.parameter_shapes)
        results = flatten([module.entry_result_layout or module.entry.result_shape])
        if any(leaf.layout and not leaf.layout.is_dim0_major for leaf in (*parameters, *results)):
            attributes["mhlo.xla_entry_computation_parameter_layouts"] = list(map(layout_attribute, parameters))
            attributes["mhlo.xla_entry_computation_result_layout"] = list(map(layout_attribute, results))
        return attributes

    def _entry_attributes(self, entry: Operation) -> None:
        """Sets shardings, frontend attributes and donation in the dictionaries of the entry's arguments and results."""
        computation = self.module.entry
        arguments: list[dict[str, Attribute]] = []
        for parameter in computation.parameters:
            count = leaf_count(parameter.shape)
            entries: list[dict[str, Attribute]] = [{} for _ in range(count)]
            if parameter.sharding is not None:
                for own, sharding in zip(entries, leaf_shardings(parameter.sharding, count), strict=True):
                    own["mhlo.sharding"] = sharding_text(sharding)
            if parameter.frontend_attributes:
                for own in entries:
                    own["mhlo.frontend_attributes"] = dict(parameter.frontend_attributes)
            arguments += entries
        self._donation(arguments)
        root = computation.root
        results: list[Attribute] = []
        if root.sharding is not None:
            shardings = leaf_shardings(root.sharding, leaf_count(root.shape))
            results = [{"mhlo.sharding": sharding_text(sharding)} for sharding in shardings]
        entry.attributes["arg_attrs"] = list(arguments)
        entry.attributes["res_attrs"] = results or [{} for _ in range(leaf_count(root.shape))]

    def _donation(self, arguments: list[dict[str, Attribute]]) -> None:
        """Sets JAX's attributes of donation: an argument may share a result's buffer, whether or not it must."""
        shapes = self.module.entry.parameter_shapes
        starts = [sum(map(leaf_count, shapes[:i])) for i in range(len(shapes))]
        for alias in self.module.input_output_alias:
            inputs = leaf_range(shapes[alias.parameter_number], alias.parameter_index)
            outputs = leaf_range(self.module.entry.result_shape, alias.output_index)
            for given, taken in zip(inputs, outputs, strict=True):
                arguments[starts[alias.parameter_number] + given]["tf.aliasing_output"] = i32(taken)
        for donor in self.module.buffer_donors:
            for given in leaf_range(shapes[donor.parameter_number], donor.parameter_index):
                arguments[starts[donor.parameter_number] + given]["jax.buffer_donor"] = True
