"""Programs of JAX over 8 devices: hloom's partitions together compute the results of JAX on 8 CPU devices."""

from __future__ import annotations

import ast
import functools
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hloom.files.arrays import difference
from hloom.passes.spmd.partitioner import Partitioned, partition
from hloom.proto import module_from_bytes
from hloom.verifier import verify_module
from passes.spmd.partitions import collectives, run

pytest.importorskip("jax", reason="needs jax, whose programs are traced")

SCRIPT = Path(__file__).with_name("sharded_jax.py")


def names() -> list[str]:
    """The programs of the script: its functions with the decorator `program`, and those that it adds by name."""
    functions = [node for node in ast.parse(SCRIPT.read_text()).body if isinstance(node, ast.FunctionDef)]
    decorated = [f.name for f in functions if any("program" in ast.unparse(d) for d in f.decorator_list)]
    return [*decorated, "pmap", "explicit"]


@functools.cache
def process(form: str) -> subprocess.Popen[bytes]:
    """The script, which ends when this process does, with its standard input."""
    command = [sys.executable, str(SCRIPT), form]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


@functools.cache
def expected_results(form: str, name: str) -> tuple[bytes, list[Any], list[Any]]:
    jax = process(form)
    assert jax.stdin is not None and jax.stdout is not None
    jax.stdin.write(f"{name}\n".encode())
    jax.stdin.flush()
    traced: tuple[bytes, list[Any], list[Any]] = pickle.load(jax.stdout)
    return traced


def partitioned(form: str, name: str) -> tuple[Partitioned, list[Any], list[Any]]:
    proto, arguments, results = expected_results(form, name)
    return partition(module_from_bytes(proto), 8), arguments, results


@pytest.mark.sampled(6)
@pytest.mark.parametrize("form", ["shardy", pytest.param("gspmd", marks=pytest.mark.long)])
@pytest.mark.parametrize("name", names())
def test_partitions_compute_what_jax_computes(name: str, form: str) -> None:
    made, arguments, results = partitioned(form, name)
    verify_module(made.module)
    module = module_from_bytes(expected_results(form, name)[0])
    backend = "cpu" if form == "shardy" else "interpreter"
    got = run(made, arguments, [*module.entry.result_shape.leaves()], backend)
    for k, (mine, theirs) in enumerate(zip(got, results, strict=True)):
        found = difference(mine, np.asarray(theirs), 1e-4, 1e-5)
        assert found is None, f"result {k} {found}"


@pytest.mark.parametrize("form", ["shardy", pytest.param("gspmd", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "name", ["data_parallel_gradient", "convolution_gradient", "embedding_gradient", "transformer_step"]
)
def test_data_parallel_gradients_gather_nothing(name: str, form: str) -> None:
    """Activations stay sharded: the gradients are summed, and nothing else is communicated."""
    made, _, _ = partitioned(form, name)
    assert {*collectives(made.module)} == {"all-reduce"}, made.module.to_text()


def test_sharded_parameters_are_gathered_and_their_gradients_scattered() -> None:
    made, _, _ = partitioned("shardy", "sharded_parameters_step")
    found = collectives(made.module)
    assert found["reduce-scatter"] == 6 and not found["all-to-all"]
    assert all(sharding.tile_assignment_dimensions[0] == 4 for sharding in made.results)


def test_tensor_parallel_gradients_gather_nothing() -> None:
    made, _, _ = partitioned("shardy", "tensor_parallel_gradient")
    assert not collectives(made.module)["all-gather"]
