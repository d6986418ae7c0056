"""Workloads of a benchmark: modules with their arguments."""

from __future__ import annotations

import json
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from hloom.errors import ArgumentError
from hloom.files.arrays import random_value, read_arrays, take_value
from hloom.ir import Module
from hloom.numerics import convert
from hloom.runtime.arguments import check_argument
from hloom.shape import Shape
from hloom.system.records import record
from hloom.values import Array, Value

MODULE, DESCRIPTION, INPUTS = "module.hlo", "meta.json", "inputs.npz"
"""Names of the files of a case in a corpus."""


@record(slots=True)
class Workload:
    """A module file and its description, which is empty except for cases of a corpus."""

    name: str
    module: Path
    description: dict[str, Any]

    @staticmethod
    def at(path: Path) -> Workload:
        """Loads the workload in a module file or in the folder of a case."""
        module = path / MODULE if path.is_dir() else path
        if module.stem != Path(MODULE).stem:
            return Workload(module.stem, module, {})
        described = module.parent / DESCRIPTION
        try:
            description = json.loads(described.read_text("utf-8")) if described.is_file() else {}
        except (OSError, ValueError) as error:
            raise ArgumentError(f"cannot read {described}: {error}") from None
        return Workload(module.resolve().parent.name, module, description)

    @property
    def is_bench(self) -> bool:
        """Whether the description is tagged `bench`."""
        return "bench" in self.description.get("tags", ())

    def arguments(self, module: Module) -> list[Value]:
        """The stored arguments, else those that the description generates, else random ones."""
        shapes = module.entry.parameter_shapes
        stored = self.module.parent / INPUTS
        if self.description and stored.is_file():
            arrays, counter = read_arrays(str(stored)), iter(range(1 << 30))
            return [take_value(arrays, shape, counter, "p", "") for shape in shapes]
        if recipes := self.description.get("generate"):
            return [generate(recipe, shape) for recipe, shape in zip(recipes, shapes, strict=True)]
        rng = np.random.default_rng(0)
        return [check_argument(random_value(rng, shape), shape, "a random argument") for shape in shapes]


def find_workloads(paths: Iterable[Path], pattern: str = "*", all_cases: bool = False) -> list[Workload]:
    """Finds the workloads in module files, case folders and corpora whose names match a glob pattern.

    Of a corpus, only cases tagged `bench` are used unless `all_cases` is set, and none with several replicas. Raises
    ArgumentError if there are none.
    """
    found = [workload for path in paths for workload in _workloads_at(path, all_cases)]
    chosen = [workload for workload in found if fnmatchcase(workload.name, pattern)]
    if not chosen:
        names = ", ".join(sorted(workload.name for workload in found))
        raise ArgumentError(f"no workload matches {pattern!r}; there are: {names}")
    return chosen


def _workloads_at(path: Path, all_cases: bool) -> list[Workload]:
    if not path.exists():
        raise ArgumentError(f"there is no file or folder {path}")
    if path.is_file() or (path / MODULE).is_file():
        return [Workload.at(path)]
    folders = sorted(module.parent for module in path.glob(f"*/{MODULE}") if (module.parent / DESCRIPTION).is_file())
    if not folders:
        raise ArgumentError(f"{path} has no cases: a case is a folder with {MODULE} and {DESCRIPTION}")
    cases = [case for case in map(Workload.at, folders) if not case.description.get("replicas")]
    chosen = [case for case in cases if all_cases or case.is_bench]
    if not chosen:
        raise ArgumentError(f"none of the {len(cases)} cases in {path} is tagged bench: take all of them with --all")
    return chosen


def generate(recipe: dict[str, Any], shape: Shape) -> Array:
    """Generates an argument of a shape by a recipe: a distribution, its parameters and a seed."""
    rng, sizes = np.random.default_rng(recipe["seed"]), shape.dimensions
    values: Array
    match recipe["dist"]:
        case "uniform":
            values = rng.uniform(recipe["lo"], recipe["hi"], sizes)
        case "integers":
            values = rng.integers(recipe["lo"], recipe["hi"], sizes)
        case "normal":
            values = rng.standard_normal(sizes) * recipe.get("scale", 1.0)
        case "abs_normal":
            values = np.abs(rng.standard_normal(sizes)) + recipe.get("lo", 0.0)
        case "spd" | "tril" as kind:
            a = rng.standard_normal(sizes)
            values = a @ a.T + len(a) * np.eye(len(a))
            values = np.tril(values) if kind == "tril" else values
        case other:
            known = "uniform, integers, normal, abs_normal, spd, tril"
            raise ArgumentError(f"there is no distribution {other!r} to make an argument from; there are: {known}")
    return convert(np.asarray(values), shape.element_type.dtype)
