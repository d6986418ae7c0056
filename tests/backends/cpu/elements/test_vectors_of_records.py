"""Vectors of records of 3 or 4 words: their elements by the interpreter of the low-level IR, and their code."""

from __future__ import annotations

import re

import numpy as np
import pytest

from hloom.backends.cpu.elements.records import has_blocks, load_records, store_records
from hloom.backends.cpu.llvm.machine_code import assembly
from hloom.backends.cpu.llvm.processor import processor
from hloom.lir import PTR, Function, FunctionBuilder, LirModule, Parameter, type_of
from hloom.lir.interpret import Interpreter

_SHUFFLE = re.compile(r"^\s+v?(shuf|unpck|punpck|perm|blend|pshuf|movsd|insertps)", re.M)


_SOURCE, _TARGET = Parameter("source", PTR), Parameter("target", PTR)


def _builder() -> FunctionBuilder:
    return FunctionBuilder(Function("run", [_SOURCE, _TARGET], is_exported=True), processor().vector_bytes)


@pytest.mark.parametrize("stride", [3, 4])
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_elements_of_records_are_vectors(lanes: int, stride: int) -> None:
    f, type = _builder(), type_of("i32", lanes)
    for k, vector in enumerate(load_records(f, _SOURCE, type, stride)):
        f.store(vector, f.at(_TARGET, k * lanes, "i32"), 4)
    records = np.arange(lanes * stride, dtype=np.int32).reshape(lanes, stride)
    found = np.zeros((stride, lanes), np.int32)
    Interpreter(LirModule([f.finish()])).call("run", records.ctypes.data, found.ctypes.data)
    np.testing.assert_array_equal(found, records.T)


@pytest.mark.parametrize("stride", [3, 4])
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_vectors_are_elements_of_records(lanes: int, stride: int) -> None:
    f, type = _builder(), type_of("i32", lanes)
    store_records(f, _TARGET, [f.load(f.at(_SOURCE, k * lanes, "i32"), type, 4) for k in range(stride)])
    vectors = np.arange(lanes * stride, dtype=np.int32).reshape(stride, lanes)
    found = np.zeros((lanes, stride), np.int32)
    Interpreter(LirModule([f.finish()])).call("run", vectors.ctypes.data, found.ctypes.data)
    np.testing.assert_array_equal(found, vectors.T)


@pytest.mark.parametrize(("stride", "shuffles"), [(3, 5), (4, 8)])
def test_each_shuffle_is_an_instruction(stride: int, shuffles: int) -> None:
    """Blocks of AVX are two 16-byte halves, which are loaded into one register."""
    f, type = _builder(), type_of("float", processor().vector_bytes // 4)
    if not has_blocks(f, type, stride):
        pytest.skip("other processors have other instructions")
    for k, vector in enumerate(load_records(f, _SOURCE, type, stride)):
        f.store(vector, f.at(_TARGET, k * type.width, "float"), 4)
    assert len(_SHUFFLE.findall(assembly(LirModule([f.finish()]).text()))) == shuffles
