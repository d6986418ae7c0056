"""The interpreter runs what the compiler emits: nests, kernels, steps and tasks compute what compiled programs compute."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import hloom as hl
from hlo_text import SOFTMAX, module_text
from hloom.backends.cpu.codegen.emitter import ProgramEmitter
from hloom.backends.cpu.llvm.processor import processor
from hloom.backends.cpu.pipeline import cpu_pipeline
from hloom.backends.cpu.program.buffer_assignment import assign_buffers
from hloom.backends.cpu.program.build_program import build_program
from hloom.backends.cpu.program.interface import TABLE
from hloom.lir import F32, I64, PTR, Function, FunctionBuilder, LirModule, Parameter, constant, type_of
from hloom.lir.interpret import Data, Interpreter
from hloom.passes import run_passes
from hloom.target import Target

Array = np.ndarray


def interpreted(text: str, *arguments: Array, threads: int = 2) -> list[Array]:
    """Returns the outputs of a program whose functions the interpreter runs, chunks of tasks in order."""
    module = hl.parse(text)
    run_passes(module, cpu_pipeline())
    program = build_program(module, Target(processor().vector_bytes, threads))
    assignment = assign_buffers(program, donate=False)
    modules = ProgramEmitter(program, assignment, processor().vector_bytes).all_modules()
    interpreter = Interpreter(LirModule([function for each in modules for function in each.functions]))

    def parallel_for(pool: Data, task: Data, context: Data, chunks: Data) -> None:
        for chunk in range(chunks):
            interpreter.invoke(int(task), [context, np.int64(chunk)])

    arrays = [np.ascontiguousarray(argument) for argument in arguments]
    outputs = [np.zeros(shape.dimensions, shape.element_type.dtype) for shape in module.entry.result_shape.leaves()]
    arrays += outputs
    arrays += [np.ascontiguousarray(buffer.data) for buffer in program.of_kind("constant")]
    entries = {"arena": interpreter.allocate(assignment.arena_bytes), "parallel_for": interpreter.export(parallel_for)}
    words = [entries.get(name, 0) for name in TABLE] + [array.ctypes.data for array in arrays]
    table = np.array(words, np.int64)
    for part in itertools.count():
        name = f"hloom_main.part{part}"
        if name not in interpreter.functions:
            return outputs
        assert interpreter.call(name, table.ctypes.data) == 0


def floats(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


SUMS = """x = f32[3,23] parameter(0)
zero = f32[] constant(0)
ROOT r = f32[3,23] reduce-window(x, zero), window={size=1x23 pad=0_0x22_0}, to_apply=sum"""
DOT = """x = f32[5,7] parameter(0)
y = f32[7,9] parameter(1)
ROOT r = f32[5,9] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}"""
TRANSPOSE = """x = f32[13,17] parameter(0)
ROOT r = f32[17,13] transpose(x), dimensions={1,0}"""
INTEGERS = """x = s32[37] parameter(0)
y = s32[37] parameter(1)
q = s32[37] divide(x, y)
c = pred[37] compare(q, x), direction=LT
ROOT r = s32[37] select(c, q, y)"""
ROTATION = """x = s32[37] parameter(0)
n = s32[] constant(13)
m = s32[] constant(19)
up = s32[37] shift-left(x, s32[37] broadcast(n))
down = s32[37] shift-right-logical(x, s32[37] broadcast(m))
ROOT r = s32[37] or(up, down)"""


@pytest.mark.parametrize(
    ("entry", "arguments"),
    [
        (SOFTMAX.replace("ROWS", "3").replace("COLUMNS", "21"), [floats(3, 21)]),
        (SUMS, [floats(3, 23)]),
        (DOT, [floats(5, 7), floats(7, 9)]),
        (TRANSPOSE, [floats(13, 17)]),
        (INTEGERS, [np.arange(-18, 19, dtype=np.int32), np.arange(1, 38, dtype=np.int32)]),
        (ROTATION, [np.arange(-(10**9), 10**9, 54321987, dtype=np.int32)]),
    ],
)
def test_programs_compute_what_compiled_ones_compute(
    monkeypatch: pytest.MonkeyPatch, entry: str, arguments: list[Array]
) -> None:
    """The interpreter knows no instructions of processors, such as those for maxima and powers of two."""
    for file in ("extrema", "functions.exponentials"):
        monkeypatch.setattr(f"hloom.backends.cpu.elements.{file}.has_avx512", lambda type: False)
    text = module_text(entry)
    (found,) = interpreted(text, *arguments)
    np.testing.assert_allclose(found, hl.compile(text, backend="cpu")(*arguments), rtol=1e-6)


def test_tasks_and_loops_of_programs() -> None:
    text = """HloModule m
body { s = (s32[], f32[40000]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  n = s32[] add(i, one)
  x = f32[40000] get-tuple-element(s), index=1
  y = f32[40000] add(x, x)
  ROOT t = (s32[], f32[40000]) tuple(n, y) }
condition { s = (s32[], f32[40000]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  limit = s32[] constant(3)
  ROOT c = pred[] compare(i, limit), direction=LT }
ENTRY e { x = f32[40000] parameter(0)
  zero = s32[] constant(0)
  s = (s32[], f32[40000]) tuple(zero, x)
  w = (s32[], f32[40000]) while(s), condition=condition, body=body
  ROOT r = f32[40000] get-tuple-element(w), index=1 }"""
    x = floats(40000)
    np.testing.assert_array_equal(interpreted(text, x)[0], hl.compile(text, backend="cpu")(x))


def test_control_flow_and_captured_values() -> None:
    task = FunctionBuilder(Function("task", [Parameter("context", PTR), Parameter("chunk", I64)]))
    context, chunk = task.function.parameters
    target, factor = task.unpack(context, PTR, I64)
    with task.when(task.compare("ne", chunk, constant(I64, 1))):
        task.store(task.index(task.multiply(chunk, factor)), task.at(target, chunk, "i64"), 8)
    f = FunctionBuilder(Function("f", [Parameter("target", PTR)], I64))
    f.run_chunks("task", f.pack(f.function.parameters[0], constant(I64, 10)), constant(I64, 4), None)
    with f.loop(10, 3, carried=[constant(I64, 0)]) as loop:
        loop.carried = [f.binary("add", loop.carried[0], f.index(loop.index))]
    f.ret(loop.carried[0])
    memory = np.full(4, 7, np.int64)
    interpreter = Interpreter(LirModule([f.function, task.finish()]))
    assert interpreter.call("f", memory.ctypes.data) == 0 + 3 + 6 + 9
    assert memory.tolist() == [0, 7, 20, 30]


def test_masked_accesses_touch_active_lanes_only() -> None:
    f = FunctionBuilder(Function("f", [Parameter("x", PTR), Parameter("y", PTR), Parameter("n", I64)]))
    x, y, n = f.function.parameters
    vector = type_of("float", 4)
    mask = f.compare("ult", constant(type_of("i64", 4), 2), f.splat(n, 4))
    values = f.load_masked(x, vector, 4, mask)
    f.store_masked(f.binary("fadd", values, constant(vector, 1)), y, 4, mask)
    f.store(f.call("llvm.vector.reduce.fadd.v4f32", F32, constant(F32, 2), values), x, 4)
    a, b = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    Interpreter(LirModule([f.finish()])).call("f", a.ctypes.data, b.ctypes.data, 3)
    assert a[0] == 2 + 0 + 1 + 2 + 3 and b.tolist() == [1, 2, 3, 4]
