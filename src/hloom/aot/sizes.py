"""Modules with unbounded sizes, `f32[?,3]`: a function for each of some sizes, and one that chooses among them."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

from hloom.aot.entry import NO_SIZE
from hloom.aot.interface import CFunction, declaration, unique_names
from hloom.errors import ArgumentError
from hloom.ir import Module
from hloom.lir import I32, I64, PTR, Function, FunctionBuilder, LirModule, Parameter, constant
from hloom.passes.unbounded import specialized
from hloom.shape import UNBOUNDED, Shape
from hloom.system.records import record

Sizes = int | Sequence[int]
"""A size for each unbounded dimension of the parameters, in order; a number is the size of all."""


def variants(name: str, module: Module, sizes: Sequence[Sizes]) -> dict[str, Module]:
    """Returns a module for each of the sizes, by the name of its function: `f_8`, `f_8x128`.

    Raises ArgumentError if there are no sizes or too few of them, and RuleError if they contradict each other (SL-25).
    """
    leaves = [leaf for shape in module.entry.parameter_shapes for leaf in shape.leaves()]
    count = sum(leaf.dimensions.count(UNBOUNDED) for leaf in leaves if leaf.is_array)
    if not sizes or len({isinstance(each, int) for each in sizes}) > 1:
        message = "give those to build it for, all as numbers or all as tuples, such as sizes=[1, 8]"
        raise ArgumentError(f"{name} has unbounded sizes: {message}")
    made = {}
    for each in sizes:
        values = [each] * count if isinstance(each, int) else list(each)
        if len(values) != count or min(values) < 0:
            raise ArgumentError(f"{name} has {count} unbounded sizes, which cannot be {each}")
        left = iter(values)
        shapes = [_with_sizes(shape, left) for shape in module.entry.parameter_shapes]
        made[f"{name}_{'x'.join(map(str, _values(each)))}"] = specialized(module, shapes)
    return made


def _with_sizes(shape: Shape, sizes: Iterator[int]) -> Shape:
    if shape.is_tuple:
        return Shape.tuple_of([_with_sizes(element, sizes) for element in shape.elements])
    if not shape.is_unbounded:
        return shape
    return Shape.array(shape.element_type, [next(sizes) if size == UNBOUNDED else size for size in shape.dimensions])


def _values(sizes: Sizes) -> Sequence[int]:
    return [sizes] if isinstance(sizes, int) else sizes


def names_of_sizes(count: int, arguments: Sequence[str]) -> list[str]:
    """Returns names of parameters for sizes, beside those of other arguments."""
    names = ["size"] if count == 1 else [f"size{k}" for k in range(count)]
    return unique_names([*arguments, *names])[len(arguments) :]


@record
class SizedFunction:
    """A function that takes sizes, and calls the one that is built for them."""

    name: str
    sizes: Sequence[Sizes]
    variants: Sequence[CFunction]
    """The functions for the sizes, in order."""

    @property
    def size_names(self) -> list[str]:
        """Names of the parameters for sizes."""
        return names_of_sizes(len(_values(self.sizes[0])), self.variants[0].arguments)

    def declaration(self) -> str:
        """Returns the declaration in C."""
        checksum = hashlib.sha256("".join(each.checksum for each in self.variants).encode()).hexdigest()[:8]
        whole = replace(self.variants[0], name=self.name, scratch_bytes=max(v.scratch_bytes for v in self.variants))
        shapes = [self._shape(k) for k in range(len(whole.arrays))]
        built = ", ".join("x".join(map(str, _values(each))) for each in self.sizes)
        sizes = [(f"int64_t {name}", "a size") for name in self.size_names]
        text = declaration(whole, checksum, [*sizes, *whole.parameters(shapes)])
        return f"/* For sizes {built}; returns {NO_SIZE} for others. */\n{text}"

    def _shape(self, array: int) -> str:
        """Returns the shape of an array, with the names of the parameters for its sizes, or `?`."""
        arrays = [variant.arrays[array] for variant in self.variants]
        given = zip(*map(_values, self.sizes), strict=True)
        names = {tuple(values): name for values, name in zip(given, self.size_names, strict=True)}
        columns = zip(*(each.sizes for each in arrays), strict=True)
        return arrays[0].with_sizes([str(c[0]) if len(set(c)) == 1 else names.get(c, "?") for c in columns])

    def emitted(self) -> LirModule:
        """Returns the function."""
        first = self.variants[0]
        sizes = [Parameter(name, I64) for name in self.size_names]
        pointers = [Parameter(f"p{k}", PTR) for k in range(len(first.parameters()))]
        b = FunctionBuilder(Function(self.name, [*sizes, *pointers], I32, is_exported=True))
        for each, variant in zip(self.sizes, self.variants, strict=True):
            fits = [b.compare("eq", size, constant(I64, n)) for size, n in zip(sizes, _values(each), strict=True)]
            with b.when(functools.reduce(lambda x, y: b.binary("and", x, y), fits)):
                b.ret(b.call(variant.name, I32, *pointers))
        b.ret(constant(I32, NO_SIZE))
        return LirModule([b.finish()])
