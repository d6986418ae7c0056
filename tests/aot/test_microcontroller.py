"""Programs on a Cortex-M7 without an operating system, heap and threads, in an emulator; semihosting gives it files."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hloom as hl
from aot.test_library import PROGRAMS, assert_close, program
from hloom.aot import Library
from hloom.files.arrays import flat, random_value
from hloom.numerics import Array

FIRMWARE = Path(__file__).with_name("firmware")
CLANG = [sys.executable, "-m", "ziglang", "cc", "-target", "thumb-freestanding-eabihf", "-mcpu=cortex_m7", "-O1"]
QEMU = ["qemu-system-arm", "-M", "mps2-an500", "-nographic", "-semihosting", "-kernel"]


def main_program(library: Library) -> str:
    """The C program that reads the arguments from files, calls the function once, and writes its results to others."""
    (function,) = library.functions
    arrays = [f"static {a.c_type} {a.name}[{max(a.count, 1)}];" for a in function.arrays]
    reads = [f'if (host_file("in{k}", 1, {a.name}, sizeof {a.name})) return 2;' for k, a in enumerate(function.inputs)]
    writes = [f'host_file("out{k}", 5, {a.name}, sizeof {a.name});' for k, a in enumerate(function.outputs)]
    call = f"if ({function.name}({', '.join([*function.arguments[:-1], '0'])})) return 3;"
    return "\n".join(
        [
            f'#include "{library.name}.h"',
            "int host_file(const char *name, int mode, void *memory, uint32_t bytes);",
            *arrays,
            f"static char scratch[{function.scratch_macro} + 1];",
            f"int main(void) {{ {' '.join([*reads, call, *writes])} return 0; }}",
        ]
    )


def results_of(library: Library, arguments: list[Array], folder: Path) -> list[Array]:
    """The results of a library's only function in the emulator."""
    library.write(folder)
    (folder / "main.c").write_text(main_program(library))
    for k, argument in enumerate(arguments):
        (folder / f"in{k}").write_bytes(np.ascontiguousarray(argument).tobytes() or bytes(8))
    options = ["-nostartfiles", "-T", str(FIRMWARE / "memory.ld"), str(FIRMWARE / "start.c")]
    command = [*CLANG, *options, "main.c", *library.binaries, "-o", "program"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    subprocess.run([*QEMU, "program"], cwd=folder, check=True, timeout=100)
    outputs = library.functions[0].outputs
    contents = [(folder / f"out{k}").read_bytes() for k in range(len(outputs))]
    sizes = [int(np.prod(a.sizes)) * a.type.byte_width for a in outputs]
    pairs = zip(contents, outputs, sizes, strict=True)
    return [np.frombuffer(c[:size], a.type.dtype).reshape(a.sizes) for c, a, size in pairs]


@pytest.mark.long
@pytest.mark.skipif(shutil.which("qemu-system-arm") is None, reason="no qemu-system-arm")
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_run_without_an_operating_system(name: str, tmp_path: Path) -> None:
    module = program(name)
    rng = np.random.default_rng(0)
    arguments = [random_value(rng, shape) for shape in module.entry.parameter_shapes]
    library = hl.build({"f": module}, target="thumbv7em")
    got = results_of(library, [leaf for a in arguments for leaf in flat(a)], tmp_path)
    for mine, want in zip(got, flat(hl.compile(module)(*arguments)), strict=True):
        assert_close(mine, want)
