"""An HLO module as StableHLO: `print_stablehlo` gives the text, `export_module` the operations.

What an operation becomes is said by its row in `stablehlo/operations.py`, or, where operands or results do not
correspond one to one, by a function of `rules.py`. Here are the parts around it: functions, regions, attributes of the
module.

Tuples do not exist in the result. The value of an instruction is the list of its leaves, so tuple and
get-tuple-element are no operations; a parameter or result that is a tuple becomes one for each leaf, in order, as
XLA's own conversion has it. Layouts inside the module, schedules and control dependencies have no place in StableHLO
and are left out: they do not change results.
"""

from __future__ import annotations

from collections.abc import Mapping

from hloom.ir import Computation, Module, callees_first
from hloom.stablehlo.embedded_text import embedded_text
from hloom.stablehlo.exporter.block import (
    BlockExporter,
    Rule,
    layout_attribute,
    leaf_count,
    leaf_range,
    leaf_shardings,
    leaves_of,
)
from hloom.stablehlo.exporter.locations import Locations
from hloom.stablehlo.exporter.rules import RULES
from hloom.stablehlo.mlir.ir import (
    Attribute,
    Block,
    Number,
    Operation,
    Region,
)
from hloom.stablehlo.mlir.text import parse_mlir, print_mlir
from hloom.stablehlo.mlir.types import I32
from hloom.text.sharding import sharding_text


def print_stablehlo(module: Module, *, locations: bool = True) -> str:
    """The StableHLO text of a module, such as JAX and other XLA front ends read it.

    `locations` writes metadata as MLIR locations. Parameters and results that are tuples become one parameter or
    result for each leaf. Raises ArgumentError, with the instruction, for what has no meaning in StableHLO.
    """
    return print_mlir(export_module(module, locations=locations))


def export_module(module: Module, *, locations: bool = True) -> Operation:
    """The `builtin.module` operation that holds a function for the entry and one for each computation it calls."""
    text = embedded_text(module)
    return parse_mlir(text) if text is not None else _ModuleExporter(module, locations).export()


class _ModuleExporter:
    rules: Mapping[str, Rule] = RULES

    def __init__(self, module: Module, locations: bool) -> None:
        self.module = module
        self.locations = Locations(module.stack_frames) if locations else None
        self.names: dict[int, str] = {id(module.entry): "main"}
        self.functions: dict[int, Operation] = {}

    def export(self) -> Operation:
        entry = self.function(self.module.entry, "public")
        self._entry_attributes(entry)
        # Called functions come after the entry, callers before callees, as a reader meets them.
        order = [id(c) for c in reversed(callees_first(self.module.entry)) if id(c) in self.functions]
        block = Block([], [entry, *(self.functions[key] for key in order)])
        return Operation("builtin.module", attributes=self._module_attributes(), regions=[Region([block])])

    # Functions

    def function(self, computation: Computation, visibility: str) -> Operation:
        """A `func.func` with one argument for each leaf of the parameters and one result for each of the root's."""
        exporter = BlockExporter(self)
        exporter.take_parameters(computation)
        exporter.body(computation, "func.return")
        return Operation(
            "func.func",
            attributes={"sym_name": self.names[id(computation)], "sym_visibility": visibility},
            regions=[Region([exporter.block])],
        )

    def symbol(self, computation: Computation) -> str:
        """The name of the function that a computation is, which is made when it is first called."""
        if id(computation) not in self.names:
            taken, name, count = set(self.names.values()), computation.name, 0
            while name in taken:
                name, count = f"{computation.name}_{count}", count + 1
            self.names[id(computation)] = name
            self.functions[id(computation)] = self.function(computation, "private")
        return self.names[id(computation)]

    # What the header of the module says

    def _module_attributes(self) -> dict[str, Attribute]:
        module = self.module
        attributes: dict[str, Attribute] = {
            "sym_name": module.name,
            "mhlo.num_partitions": Number(module.num_partitions, I32),
            "mhlo.num_replicas": Number(module.replica_count, I32),
        }
        if module.frontend_attributes:
            attributes["mhlo.frontend_attributes"] = dict(module.frontend_attributes)
        parameters = leaves_of(module.entry_parameter_layouts or module.entry.parameter_shapes)
        results = leaves_of([module.entry_result_layout or module.entry.result_shape])
        if any(leaf.layout and not leaf.layout.is_dim0_major for leaf in (*parameters, *results)):
            attributes["mhlo.xla_entry_computation_parameter_layouts"] = list(map(layout_attribute, parameters))
            attributes["mhlo.xla_entry_computation_result_layout"] = list(map(layout_attribute, results))
        return attributes

    def _entry_attributes(self, entry: Operation) -> None:
        """Shardings, frontend attributes and donation, in the dictionaries of arguments and results."""
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
        """In JAX's attributes, which say that an argument may share a result's buffer, not that it must."""
        shapes = self.module.entry.parameter_shapes
        starts = [sum(map(leaf_count, shapes[:i])) for i in range(len(shapes))]
        for alias in self.module.input_output_alias:
            inputs = leaf_range(shapes[alias.parameter_number], alias.parameter_index)
            outputs = leaf_range(self.module.entry.result_shape, alias.output_index)
            for given, taken in zip(inputs, outputs, strict=True):
                arguments[starts[alias.parameter_number] + given]["tf.aliasing_output"] = Number(taken, I32)
        for donor in self.module.buffer_donors:
            for given in leaf_range(shapes[donor.parameter_number], donor.parameter_index):
                arguments[starts[donor.parameter_number] + given]["jax.buffer_donor"] = True
