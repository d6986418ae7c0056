"""The corpus of real programs: results, and round trips through text and protos, ours and XLA's."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hloom as hl
from compare_graphs import difference as graph_difference
from conftest import CORPUS
from hloom.bench.peer_process import XlaPeer
from hloom.bench.workloads import generate
from hloom.files.arrays import difference, flat, from_raw_bits
from hloom.numerics import Array
from hloom.proto import module_from_bytes, module_to_bytes
from hloom.text import fingerprint
from hloom.types import BY_DTYPE

CASES = sorted(p.parent for p in CORPUS.glob("*/meta.json"))
STORED = [case for case in CASES if (case / "expected.npz").exists()]
SMALL_BYTES = 5000
"""The bound on texts that the default run checks in every way; the long run does it for all."""
LARGE_BYTES = 30_000
"""The bound on texts that the default run reads and writes in every way."""
TEXTS = sorted([*CORPUS.glob("*/module.hlo"), *CORPUS.glob("parse/*.hlo")])

# GEN-7: these hold subnormal inputs, which hloom keeps and XLA's CPU backend flushes to zero in some operations. The
# elements whose operands are subnormal are left out of the comparison; subnormal results count as zeros.
FLUSHED = {"binary_bfloat16", "binary_float32", "compare_float", "unary_bfloat16", "unary_float32"}


def small_first(cases: Iterable[Path]) -> list[Any]:
    """The programs as parameters, the larger ones marked as long."""
    sizes = {case: (case / "module.hlo").stat().st_size for case in cases}
    ordered = sorted(sizes, key=sizes.__getitem__)
    return [case if sizes[case] < SMALL_BYTES else pytest.param(case, marks=pytest.mark.long) for case in ordered]


def without_large(paths: Iterable[Path]) -> list[Any]:
    """Texts, or folders of programs, as parameters, the large ones marked as long."""
    sizes = {path: (path / "module.hlo" if path.is_dir() else path).stat().st_size for path in paths}
    return [path if size < LARGE_BYTES else pytest.param(path, marks=pytest.mark.long) for path, size in sizes.items()]


def name_of(path: Path) -> str:
    return path.stem if path.parent.name == "parse" else path.parent.name


def load_case(case: Path) -> tuple[dict[str, Any], hl.Module, list[list[Array]]]:
    """The description, the module and the inputs of each replica."""
    meta = json.loads((case / "meta.json").read_text())
    module = hl.load(case / "module.hlo")
    shapes = [parameter.shape for parameter in module.entry.parameters]
    with np.load(case / "inputs.npz") as file:
        suffixes = [f"_rep{r}" for r in range(meta["replicas"])] if meta.get("replicas") else [""]
        inputs = [
            [from_raw_bits(file[f"p{i}{suffix}"], shape.element_type.dtype) for i, shape in enumerate(shapes)]
            for suffix in suffixes
        ]
    return meta, module, inputs


def flush(array: Array) -> Array:
    """Subnormal numbers as zeros of their sign."""
    element_type = BY_DTYPE[array.dtype]
    if not element_type.is_float:
        return array
    tiny = {"f16": 2.0**-14, "f64": 2.0**-1022}.get(element_type.text, 2.0**-126)
    wide = array.astype(np.float64)
    return np.where(np.abs(wide) < tiny, np.copysign(0.0, wide), wide).astype(array.dtype)


def check_results(name: str, meta: dict[str, Any], inputs: list[list[Array]], results: list[Any]) -> None:
    """The results of each device are those that are stored, within the tolerances of the description."""
    subnormal = np.zeros((), bool)
    if name in FLUSHED:
        for x in inputs[0]:
            subnormal = subnormal | ((flush(x) != x) & ~np.isnan(x.astype(np.float64)))
        assert 0 < subnormal.sum() < subnormal.size / 2
    with np.load(CORPUS / name / "expected.npz") as expected:
        for device, result in enumerate(results):
            leaves = flat(result)
            suffix = f"_rep{device}" if meta.get("replicas") else ""
            assert f"r{len(leaves)}{suffix}" not in expected.files
            for i, leaf in enumerate(leaves):
                tolerance = meta["outputs"][i] if meta.get("outputs") else {}
                got, want = leaf, from_raw_bits(expected[f"r{i}{suffix}"], leaf.dtype)
                if name in FLUSHED:
                    got, want = flush(got[~subnormal]), want[~subnormal]
                found = difference(got, want, tolerance.get("rtol", 1e-6), tolerance.get("atol", 0))
                assert found is None, f"r{i} {found}"


@pytest.mark.parametrize("case", STORED, ids=lambda case: case.name)
def test_results_are_those_of_xla(case: Path) -> None:
    meta, module, inputs = load_case(case)
    check_results(case.name, meta, inputs, hl.compile(module, backend="interpreter").run_replicas(inputs))


OPTIMISED = [p for p in sorted(CORPUS.glob("parse/*.hlo")) if (CORPUS / p.stem / "expected.npz").exists()]


@pytest.mark.parametrize("path", OPTIMISED, ids=name_of)
def test_modules_that_xla_optimised_give_the_same_results(path: Path) -> None:
    """Fusions, bitcasts by layout, copies, and the custom calls that XLA's CPU compiler leaves in a module."""
    meta, _, inputs = load_case(CORPUS / path.stem)
    check_results(path.stem, meta, inputs, hl.compile(hl.load(path), backend="interpreter").run_replicas(inputs))


@pytest.mark.sampled(110)
@pytest.mark.parametrize("path", without_large(TEXTS), ids=name_of)
def test_text_loses_nothing_and_a_proto_nothing_that_xla_has_a_field_for(path: Path) -> None:
    module = hl.load(path)
    text = module.to_text()
    again = hl.parse(text)
    assert graph_difference(module, again) is None
    assert again.to_text() == text
    again = module_from_bytes(module_to_bytes(module))
    names = [instruction.name for instruction in module.instructions()]
    if len(set(names)) < len(names):
        # XLA's proto wants names that are unique in the module, so some have changed.
        again.replica_count, again.extra_attributes = module.replica_count, module.extra_attributes
        assert fingerprint(module) == fingerprint(again)
        return
    assert graph_difference(module, again, frozenset({"replica_count", "extra_attributes"})) is None


@pytest.mark.sampled(80)
@pytest.mark.parametrize(
    "case", without_large(c for c in CASES if (c / "module.pb.xz").exists()), ids=lambda case: case.name
)
def test_the_stored_proto_is_the_graph_of_the_stored_text(case: Path) -> None:
    stored = module_from_bytes(lzma.decompress((case / "module.pb.xz").read_bytes()))
    # The texts were printed without metadata.
    ignored = frozenset({"metadata", "stack_frames", "extra_attributes"})
    assert graph_difference(stored, hl.load(case / "module.hlo"), ignored) is None


@pytest.mark.sampled(110)
@pytest.mark.parametrize("path", without_large(TEXTS), ids=name_of)
def test_xla_reads_what_hloom_writes(path: Path, peer: XlaPeer) -> None:
    module = hl.load(path)
    assert peer.parse(module.to_text()).startswith("HloModule")
    assert peer.read_proto(module_to_bytes(module)).startswith("HloModule")


@pytest.mark.sampled(20)
@pytest.mark.parametrize(
    "case", small_first(c for c in STORED if not c.name.startswith("replicas")), ids=lambda case: case.name
)
def test_xla_computes_the_same_from_the_text_that_hloom_prints(case: Path, peer: XlaPeer) -> None:
    meta, module, inputs = load_case(case)
    results = peer.run(module.to_text(), inputs[0])
    with np.load(case / "expected.npz") as expected:
        for i, result in enumerate(results):
            tolerance = meta["outputs"][i]
            found = difference(result, expected[f"r{i}"], tolerance.get("rtol", 1e-6), tolerance.get("atol", 0))
            assert found is None, f"r{i} {found}"


BENCH = [case for case in CASES if not (case / "expected.npz").exists()]


def in_f64(module: hl.Module, inputs: list[Array]) -> list[Array]:
    """The results of a program of f32 when all its f32 are f64: the truth for both of two f32 results."""
    text = module.to_text().replace("f32[", "f64[")
    wide = [x.astype(np.float64) if x.dtype == np.float32 else x for x in inputs]
    return flat(hl.compile(text, backend="interpreter")(*wide))


@pytest.mark.long
@pytest.mark.parametrize("case", BENCH, ids=lambda case: case.name)
def test_the_bench_tier_agrees_with_xla(case: Path, peer: XlaPeer) -> None:
    """Results are as near to f64 as XLA's where rounding errors grow over hundreds of steps, and no f32 result is exact."""
    meta, module = json.loads((case / "meta.json").read_text()), hl.load(case / "module.hlo")
    shapes = [parameter.shape for parameter in module.entry.parameters]
    inputs = [generate(how, s) for how, s in zip(meta["generate"], shapes, strict=True)]
    want = peer.run(module.to_text(), inputs)
    for i, (got, expected) in enumerate(zip(flat(hl.compile(module)(*inputs)), want, strict=True)):
        tolerance = meta["outputs"][i]
        found = difference(got, expected, tolerance["rtol"], tolerance["atol"])
        if found is not None and got.dtype == np.float32:
            truth = in_f64(module, inputs)[i]
            if root_mean_square(got - truth) <= root_mean_square(expected - truth):
                found = None
        assert found is None, f"r{i} {found}"


def root_mean_square(x: Array) -> float:
    return float(np.sqrt(np.mean(np.square(x))))
