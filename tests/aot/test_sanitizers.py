"""Libraries under sanitizers: their LLVM IR and the C program are instrumented, the corpus is a sample.

LLVM instruments functions that have the attribute of a sanitizer, by zig's clang; GCC links its run-time library.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hloom as hl
from aot.test_library import WIDE, assert_close, check
from hloom.aot import Emit, Library
from hloom.files.arrays import flat
from hloom.numerics import Array
from targets.c_program import main_program, results_of
from test_corpus import STORED, load_case

CASES = int(os.environ.get("HLOOM_CASES", "4000"))
ONE_DEVICE = [case for case in STORED if "shard" not in case.name]
SAMPLE = ONE_DEVICE[:: max(1, 40000 // CASES)]
"""A tenth of the corpus, or with fewer cases less."""
CLANG = [sys.executable, "-m", "ziglang", "clang", "-c", "-O1", "-march=x86-64-v3", "-fPIC", "-Wno-override-module"]
X = [np.random.default_rng(0).standard_normal((600, 700)).astype(np.float32)]

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("gcc") is None or not importlib.util.find_spec("ziglang"), reason="no compilers"),
]


def instrumented(library: Library, sanitizer: str, folder: Path, main: str) -> None:
    """Compiles a library, given as LLVM IR, and a C program with a sanitizer."""
    library.write(folder)
    # GCC 12's library has no replacements of LLVM's memory intrinsics.
    options = ["-mllvm", "-tsan-instrument-memintrinsics=0"] if sanitizer == "thread" else []
    for name, text in library.binaries.items():
        attributed = re.sub(r"^(define .*) \{$", rf"\1 sanitize_{sanitizer} {{", text.decode(), flags=re.MULTILINE)
        (folder / name).write_text(attributed)
        subprocess.run([*CLANG, *options, f"-fsanitize={sanitizer}", name], cwd=folder, check=True)
    (folder / "main.c").write_text(main)
    objects = [Path(name).with_suffix(".o").name for name in library.binaries]
    both = {"address": "address,undefined"}.get(sanitizer, sanitizer)
    command = ["gcc", "-O1", f"-fsanitize={both}", "main.c", *objects, "-lm", "-lpthread", "-o", "main"]
    subprocess.run(command, cwd=folder, check=True)


def checked(
    module: hl.Module,
    arguments: list[Any],
    sanitizer: str,
    folder: Path,
    changed: Callable[[str], str] = lambda main: main,
) -> list[Array]:
    """The results of a library with a pool of three threads, under a sanitizer."""
    library = hl.build({"f": module}, threads=3, emit=Emit.LLVM, target="x86-64-v3")
    instrumented(library, sanitizer, folder, changed(main_program(library, library.functions[0], 3)))
    return results_of(library, [leaf for a in arguments for leaf in flat(a)], folder)[0]


@pytest.mark.parametrize("case", SAMPLE, ids=lambda case: case.name)
def test_addresses_and_undefined_behaviour(case: Path, tmp_path: Path) -> None:
    meta, module, inputs = load_case(case)
    if meta.get("replicas") or module.num_partitions > 1:
        return
    for mine, want in zip(
        checked(module, inputs[0], "address", tmp_path), flat(hl.compile(module)(*inputs[0])), strict=True
    ):
        assert_close(mine, want)


def test_a_planted_overflow_is_found(tmp_path: Path) -> None:
    def shortened(main: str) -> str:
        return main.replace("*result = buffer(420000 * sizeof(float)", "*result = buffer(419999 * sizeof(float)")

    with pytest.raises(subprocess.CalledProcessError) as error:
        checked(hl.parse(WIDE), X, "address", tmp_path, shortened)
    assert "heap-buffer-overflow" in error.value.stderr


def test_threads_of_a_pool_do_not_race(tmp_path: Path) -> None:
    """Forks, joins, parking and the end of a pool, over many calls."""
    (got,) = checked(hl.parse(WIDE), X, "thread", tmp_path, repeated)
    assert_close(got, hl.compile(WIDE)(*X))


def repeated(main: str, calls: int = 100) -> str:
    """The program with many calls, between which threads park from time to time."""
    several = f"for (int k = 0; k < {calls}; k++) {{ if (CALL) return 3; if (k % 10 == 0) usleep(1000); }}"
    return "#include <unistd.h>\n" + main.replace("if (CALL) return 3;", several)


def test_a_planted_race_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that leave a loop without releasing their results race with the next call and with the program's end.

    On a busy machine the workers may come too late for many calls in a row, and only a thread that runs can race:
    the program calls until a race is found.
    """
    monkeypatch.setenv("TSAN_OPTIONS", "halt_on_error=1")
    library = hl.build({"f": hl.parse(WIDE)}, threads=3, emit=Emit.LLVM, target="x86-64-v3")
    runtime = library.binaries["hloom_runtime.ll"].decode()
    racy = runtime.replace("atomicrmw sub ptr %pool, i64 1 release", "atomicrmw sub ptr %pool, i64 1 monotonic")
    assert racy != runtime
    changed = replace(library, binaries={**library.binaries, "hloom_runtime.ll": racy.encode()})
    instrumented(changed, "thread", tmp_path, repeated(main_program(library, library.functions[0], 3), calls=20_000))
    with pytest.raises(subprocess.CalledProcessError) as error:
        results_of(library, X, tmp_path)
    assert "data race" in error.value.stderr


MEMCHECK = ["valgrind", "-q", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=all"]


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="no valgrind")
@pytest.mark.parametrize("case", SAMPLE[1::2], ids=lambda case: case.name)
def test_valgrind_finds_no_errors_in_the_corpus(case: Path, tmp_path: Path) -> None:
    meta, module, inputs = load_case(case)
    if not meta.get("replicas") and module.num_partitions == 1:
        check(module, tmp_path, inputs[0], target="x86-64-v3", threads=2, emulator=MEMCHECK)
