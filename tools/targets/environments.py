"""Environments in which libraries run: a target and an emulator, a JavaScript engine or Wine."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from hloom.aot import Library
from hloom.numerics import Array
from targets import c_program, web_program

Runner = Callable[[Library, Sequence[Array], Path, float], tuple[list[Array], float]]
"""Runs a library's function on arguments, in a folder; returns the results and the best time in some seconds."""
NODE, CHROMIUM = "node", "chromium"
EMULATED_SECONDS = 3
"""Processor time that an emulated program may take."""


@dataclass(frozen=True)
class Environment:
    """A target, and the command that programs for it are run by, if any; `zig` is another target of its linker."""

    name: str
    target: str
    where: str
    command: tuple[str, ...] = ()
    is_timed: bool = False
    """Whether times say something about the target; an emulator's do not."""
    zig: str | None = None
    is_linked_only: bool = field(default=False)
    """Whether programs are linked, but there is nothing to run them."""

    @property
    def is_here(self) -> bool:
        """Whether this machine has the command."""
        return not self.command or shutil.which(self.command[0]) is not None

    @property
    def is_emulated(self) -> bool:
        """Whether another processor is emulated."""
        return bool(self.command) and self.command[0].startswith("qemu")

    @contextmanager
    def runner(self, folder: Path) -> Iterator[Runner]:
        """Returns a runner for programs in a folder, which raises TimeoutError for emulated ones that take too long."""
        if self.command == (CHROMIUM,):
            with web_program.opened(folder) as browser:
                yield browser.results
        elif self.command == (NODE,):
            yield web_program.results_in_node
        else:
            yield self._run

    def _run(
        self, library: Library, arguments: Sequence[Array], folder: Path, seconds: float
    ) -> tuple[list[Array], float]:
        compiler = c_program.compiler_of(library, self.zig) if self.zig else ()
        c_program.compile_program(library, folder, compiler=compiler, is_aligned=seconds > 0)
        if self.is_linked_only:
            return [], 0.0
        limited = ("prlimit", f"--cpu={EMULATED_SECONDS}") if self.is_emulated else ()
        try:
            return c_program.results_of(library, arguments, folder, (*limited, *self.command), seconds)
        except subprocess.CalledProcessError as error:
            if limited and -error.returncode in (signal.SIGXCPU, signal.SIGKILL):
                raise TimeoutError(f"took more than {EMULATED_SECONDS} s") from None
            raise


ENVIRONMENTS = (
    Environment("native", "native", "this machine", is_timed=True),
    Environment(
        "x86-64-v2", "x86-64-v2", "QEMU's Nehalem, which has no AVX", ("qemu-x86_64-static", "-cpu", "Nehalem")
    ),
    Environment("x86-64-v3, musl", "x86-64-v3", "this machine, static", is_timed=True, zig="x86_64-linux-musl"),
    Environment("aarch64", "aarch64", "QEMU", ("qemu-aarch64-static",)),
    Environment("riscv64", "riscv64", "QEMU", ("qemu-riscv64-static",)),
    Environment("armv7", "armv7", "QEMU", ("qemu-arm-static",)),
    Environment("wasm32, Node", "wasm32", "Node", (NODE,), is_timed=True),
    Environment("wasm32, Chromium", "wasm32", "headless Chromium", (CHROMIUM,), is_timed=True),
    Environment("windows-x86-64", "windows-x86-64", "Wine", ("wine",), is_timed=True),
    Environment("macos-aarch64", "macos-aarch64", "nowhere: linked", is_linked_only=True),
    Environment("macos-x86-64", "macos-x86-64", "nowhere: linked", is_linked_only=True),
)


def version_of(command: str) -> str:
    """Returns the first line in which a command says its version."""
    done = subprocess.run([command, "--version"], capture_output=True, text=True, check=False)
    return done.stdout.strip().splitlines()[0] if done.stdout.strip() else command
