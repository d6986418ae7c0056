"""Import of StableHLO text as HLO modules: functions become computations, ops become instructions.

`main` is the entry, else the only public function. A called function becomes one computation, or several if the sizes
of its parameters are known only to its callers. `body.py` imports single ops.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from hloom.ir import BufferDonor, Computation, InputOutputAlias, Module, callees_first
from hloom.layout import Layout
from hloom.ops.structure import Tuple
from hloom.shape import Shape
from hloom.stablehlo.attributes.values import boolean, integer, integers, symbol_name
from hloom.stablehlo.embedded_text import embed_text
from hloom.stablehlo.importer.annotations import argument_annotations, frontend_attributes, result_sharding
from hloom.stablehlo.importer.body import Body, computation_of, parameter_name
from hloom.stablehlo.importer.context import ImportContext
from hloom.stablehlo.importer.meshes import mesh_texts
from hloom.stablehlo.importer.rules.table import rule_of
from hloom.stablehlo.mlir.attribute_text import symbol_text
from hloom.stablehlo.mlir.ir import (
    Attribute,
    DenseElements,
    Number,
    Operation,
    Region,
    Symbol,
)
from hloom.stablehlo.mlir.text import parse_mlir, print_mlir
from hloom.stablehlo.mlir.types import is_sized, shape_of
from hloom.verifier import verify_module


def parse_stablehlo(text: str) -> Module:
    """Imports StableHLO text as a verified HLO module.

    Several results of the main function become one tuple, as in XLA. A program whose parameters have sizes that are
    known only to a call becomes one custom call that embeds the text (`stablehlo/embedded_text.py`).

    Raises ParseError, with line, column and caret, for text that is not StableHLO or has no counterpart in HLO;
    RuleError or VerifyError for a module that breaks a rule of HLO.
    """
    return import_module(parse_mlir(text), text)


def specialized_stablehlo(text: str, parameters: Sequence[Shape]) -> Module:
    """Imports StableHLO text for parameters of these shapes; returns and raises as `parse_stablehlo`."""
    return import_module(parse_mlir(text), text, parameters)


def import_module(operation: Operation, text: str = "", parameters: Sequence[Shape] | None = None) -> Module:
    """Imports an MLIR module as a verified HLO module.

    `text` is its source, quoted in errors; `parameters` are shapes of parameters, for types without sizes. Raises
    ParseError for ops that have no counterpart in HLO.
    """
    module = ModuleImporter(operation, text, parameters).run()
    verify_module(module)
    return module


class ModuleImporter(ImportContext):
    """Collects the functions of a module, imports callees before callers, and sets the module's attributes."""

    def __init__(self, operation: Operation, text: str, parameters: Sequence[Shape] | None) -> None:
        super().__init__(text, rule_of)
        self.operation = operation
        self.parameters = parameters
        self.is_specialized = parameters is not None
        self.is_bounded = any(shape.is_dynamic for shape in parameters or ())

    def run(self) -> Module:
        """Imports the module, without verifying it; raises ParseError as `import_module`."""
        self._collect(self.operation)
        main = self._main()
        interface = self.function_type(main)
        functions = self._callees_first(main)
        if not self.is_specialized and not all(map(is_sized, interface.inputs)):
            name = str(self.operation.attributes.get("sym_name") or "main")
            parameters = [parameter_name(argument, i) for i, argument in enumerate(main.regions[0].block.arguments)]
            return embed_text(name, interface, parameters, self.text or print_mlir(self.operation))
        for function in functions if not self.is_specialized else ():
            if function is not main and all(map(is_sized, self.function_type(function).inputs)):
                computation_of(self, function, self._parameter_shapes(function))
        body = Body(self, self.unique(str(main.attributes["sym_name"])))
        return self._module(main, self._entry(main, body))

    def _collect(self, module: Operation) -> None:
        for operation in module.regions[0].block.operations:
            name = operation.attributes.get("sym_name")
            if operation.name == "func.func" and isinstance(name, str):
                if name in self.functions:
                    self.error(operation, f"the function @{name} is defined twice")
                self.functions[name] = operation
            elif operation.name == "sdy.mesh":
                self.meshes |= mesh_texts(operation)
            elif operation.name != "builtin.module":
                # Symbols of nested modules are not visible outside, thus their functions are never called.
                self.error(operation, "a module contains only functions, meshes and modules")

    def _main(self) -> Operation:
        if "main" in self.functions:
            return self.defined(self.functions["main"])
        public = [f for f in self.functions.values() if f.attributes.get("sym_visibility") != "private" and f.regions]
        if len(public) != 1:
            names = ", ".join(f"@{name}" for name in self.functions) or "none"
            self.error(self.operation, f"there is no function @main, and not one public function; there is: {names}")
        return public[0]

    def _callees_first(self, main: Operation) -> list[Operation]:
        """The functions reachable from main, callees before callers; raises ParseError for recursion."""
        order: list[Operation] = []
        state = {id(main): 1}
        stack = [(main, self._called(main))]
        while stack:
            function, rest = stack[-1]
            for callee in rest:
                if state.get(id(callee)) == 1:
                    self.error(callee, f"the function @{callee.attributes['sym_name']} calls itself")
                if id(callee) not in state:
                    state[id(callee)] = 1
                    stack.append((callee, self._called(callee)))
                    break
            else:
                state[id(function)] = 2
                order.append(function)
                stack.pop()
        return order

    def _called(self, function: Operation) -> Iterator[Operation]:
        for operation in walk(function.regions):
            for name in called_names(operation):
                yield self.function(operation, name)

    def _parameter_shapes(self, function: Operation) -> list[Shape]:
        with self.errors_at(function):
            return list(map(shape_of, self.function_type(function).inputs))

    # The entry and the module's attributes

    def _entry(self, main: Operation, body: Body) -> Computation:
        computation = body.function(main, self.parameters or self._parameter_shapes(main))
        entries = main.attributes.get("arg_attrs")
        for i, parameter in enumerate(computation.parameters):
            attributes = entries[i] if isinstance(entries, list) else {}
            with self.errors_at(main, f"argument {i}: "):
                argument_annotations(parameter, attributes or {}, self.meshes)
        with self.errors_at(main):
            sharding = result_sharding(main.attributes.get("res_attrs"), computation.root.shape, self.meshes)
        if sharding is not None:
            root = computation.root
            if not root.shape.is_tuple or not isinstance(root.op, Tuple):
                # The result may have another sharding than the instruction that computes it.
                root = body.copy_of_root(root)
            root.sharding = sharding
        return computation

    def _module(self, main: Operation, entry: Computation) -> Module:
        attributes = self.operation.attributes
        module = Module(re.sub(r"[^\w.\-]", "_", str(attributes.get("sym_name") or "main")))
        for computation in callees_first(entry):
            module.add(computation, entry=computation is entry)
        counts = {"mhlo.num_replicas": "replica_count", "mhlo.num_partitions": "num_partitions"}
        for name, field in counts.items():
            if isinstance(attributes.get(name), Number):  # XLA ignores attributes of other kinds
                with self.errors_at(self.operation):
                    setattr(module, field, integer(attributes[name]))
        module.frontend_attributes = frontend_attributes(attributes)
        if self.meshes:
            meshes = ", ".join(f"{symbol_text(name)[1:]} = #sdy.mesh<{text}>" for name, text in self.meshes.items())
            module.frontend_attributes["xla.sdy.meshes"] = f"{{{meshes}}}"
        module.set_default_entry_layouts()
        self._entry_layouts(module)
        self._donations(main, module)
        return module

    def _entry_layouts(self, module: Module) -> None:
        """Sets entry layouts from XLA's module attributes: a layout for each leaf of parameters and result."""
        attributes = self.operation.attributes
        parameters = attributes.get("mhlo.xla_entry_computation_parameter_layouts")
        if isinstance(parameters, list) and module.entry_parameter_layouts is not None:
            layouts = iter(parameters)
            shapes = [self._with_layouts(shape, layouts) for shape in module.entry_parameter_layouts]
            module.entry_parameter_layouts = shapes
        result = attributes.get("mhlo.xla_entry_computation_result_layout")
        if isinstance(result, list) and module.entry_result_layout is not None:
            module.entry_result_layout = self._with_layouts(module.entry_result_layout, iter(result))

    def _with_layouts(self, shape: Shape, layouts: Iterator[Attribute]) -> Shape:
        if shape.is_tuple:
            return Shape.tuple_of(self._with_layouts(element, layouts) for element in shape.elements)
        layout = next(layouts, None)
        if not shape.is_array or not isinstance(layout, DenseElements):
            return shape
        with self.errors_at(self.operation):
            return shape.with_layout(Layout(integers(layout)))

    def _donations(self, main: Operation, module: Module) -> None:
        entries = main.attributes.get("arg_attrs")
        is_tuple = len(self.function_type(main).results) != 1
        for i, attributes in enumerate(entries if isinstance(entries, list) else ()):
            if "tf.aliasing_output" in attributes:
                with self.errors_at(main):
                    output = integer(attributes["tf.aliasing_output"])
                module.input_output_alias.append(InputOutputAlias((output,) if is_tuple else (), i, ()))
            elif "jax.buffer_donor" in attributes and boolean(attributes["jax.buffer_donor"]):
                module.buffer_donors.append(BufferDonor(i, ()))


def walk(regions: Sequence[Region]) -> Iterator[Operation]:
    """The operations in regions, including nested ones."""
    stack = [operation for region in regions for block in region.blocks for operation in block.operations]
    while stack:
        operation = stack.pop()
        yield operation
        for region in operation.regions:
            for block in region.blocks:
                stack.extend(block.operations)


_CALLS = ("func.call", "stablehlo.composite", "mhlo.composite", "mhlo.async_start")


def called_names(operation: Operation) -> Iterator[str]:
    """The names of functions that an operation refers to."""
    for name in ("callee", "decomposition", "called_computation"):
        symbol = operation.attributes.get(name)
        if isinstance(symbol, (Symbol, str)) and operation.name in _CALLS:
            yield symbol_name(symbol)
    called = operation.attributes.get("called_computations")
    if isinstance(called, list):
        for symbol in called:
            if isinstance(symbol, Symbol):
                yield symbol.name
