"""The garbage collector runs less often while modules are compiled, and as before afterwards."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import numpy as np
import pytest

import hloom as hl
from hloom.backends.cpu import compiler


@pytest.mark.parametrize("cache", ["", "a folder"])
def test_the_collector_waits_while_a_module_is_compiled(
    cache: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HLOOM_CACHE_DIR", cache and str(tmp_path_factory.mktemp("cache")))
    during: list[int] = []
    compile_once = compiler._compile_once

    def watched(*arguments: object) -> object:
        during.append(gc.get_threshold()[0])
        return compile_once(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(compiler, "_compile_once", watched)
    before = gc.get_threshold()
    hl.compile("ENTRY e { x = f32[3] parameter(0) ROOT r = f32[3] sine(x) }")
    assert during and min(during) >= 50_000 > before[0]
    assert gc.get_threshold() == before


MANY_COMPILATIONS = """
import gc, weakref
import hloom as hl
from hloom.system import garbage

class Node:
    def __init__(self, size):
        self.cycle = [self, [[] for _ in range(size)]]

garbage._NEW_OBJECTS = 10_000
nodes, size = [], len(gc.get_objects()) // 60
for _ in range(60):
    with garbage.older_objects_frozen():
        kept = Node(size)  # until the next one
        nodes.append(weakref.ref(kept))
print(sum(node() is not None for node in nodes))
"""


FIRST_COMPILATION = """
import gc, sys
import hloom as hl

sizes = []
gc.callbacks.append(lambda phase, _: sizes.append(len(gc.get_objects(generation=0)) if phase == "start" else 0))
before = len(sys.modules)
hl.compile("ENTRY e { x = f32[3] parameter(0) ROOT r = f32[3] sine(x) }")
kept = [[] for _ in range(1000)]
print(len(sys.modules) - before, max(sizes))
"""


def test_the_collector_does_not_look_through_imported_code() -> None:
    done = subprocess.run([sys.executable, "-c", FIRST_COMPILATION], capture_output=True, text=True, check=True)
    modules, largest = map(int, done.stdout.split())
    assert modules > 100 and largest < 20_000


def test_garbage_of_many_compilations_is_collected() -> None:
    """Freezing makes garbage old, and Python would never collect it: it counts what has survived collections."""
    done = subprocess.run([sys.executable, "-c", MANY_COMPILATIONS], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 50


def test_code_is_freed_without_the_collector() -> None:
    run = hl.compile("ENTRY e { x = f32[3] parameter(0) ROOT r = f32[3] sine(x) }")
    run(np.zeros(3, np.float32))
    code = weakref.ref(run.code)
    gc.disable()
    try:
        del run
        assert code() is None
    finally:
        gc.enable()
