"""A process that runs one module on one side: `python -m benchmarks.xla.worker SIDE INPUTS RESULTS RECIPE`.

The folder of inputs holds the module as text and, with its elided constants filled, as a protocol buffer. The replies
are those of `benchmarks.worker`, and to `recipe` the number of the first recipe of arguments whose results are finite.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.replies import peak_bytes, plain, times
from benchmarks.xla.modules import RECIPES, Recipe, arguments
from hloom.values import Array

TEXT, FILLED, PARAMETERS = "module.hlo", "module.pb", "parameters.json"
TRIVIAL = "HloModule trivial ENTRY e { x = f32[] parameter(0) ROOT y = f32[] add(x, x) }"
SEED = 0
Run = Callable[[], Any]


class Ours:
    """hloom in this process."""

    def __init__(self) -> None:
        import hloom

        hloom.compile(TRIVIAL)

    def compile(self, folder: Path) -> tuple[dict[str, float], Any]:
        import hloom
        from hloom.files.elided import fill_elided

        started = time.perf_counter()
        module = hloom.parse((folder / TEXT).read_text())
        parsed = time.perf_counter()
        module = fill_elided(module, SEED)
        filled = time.perf_counter()
        executable = hloom.compile(module)
        return {"initialise": parsed - started, "compile": time.perf_counter() - filled}, executable

    def bind(self, executable: Any, drawn: Any) -> Run:
        return functools.partial(executable, *drawn)

    def arrays(self, run: Run) -> list[Array]:
        from hloom.files.arrays import flat

        return flat(run())


class Theirs:
    """XLA's CPU backend in this process."""

    def __init__(self) -> None:
        from hloom.bench.peer import Peer

        self.peer = Peer()
        self.peer.compile(self.peer.translate_text(TRIVIAL))

    def compile(self, folder: Path) -> tuple[dict[str, float], Any]:
        started = time.perf_counter()
        with contextlib.suppress(ValueError, RuntimeError):  # an attribute that jaxlib does not know yet
            self.peer.read_text((folder / TEXT).read_text())
        parsed = time.perf_counter()
        translated = self.peer.translate_bytes((folder / FILLED).read_bytes())
        filled = time.perf_counter()
        executable = self.peer.compile(translated)
        return {"initialise": parsed - started, "compile": time.perf_counter() - filled}, executable

    def bind(self, executable: Any, drawn: Any) -> Run:
        buffers = [self.peer.put([array])[0] for array in drawn]
        return functools.partial(executable, buffers)

    def arrays(self, run: Run) -> list[Array]:
        return [np.asarray(result) for result in run()]


def main(side: str, inputs: str, results: str, recipe: str) -> None:
    folder = Path(inputs)
    parameters = json.loads((folder / PARAMETERS).read_text())
    platform: Ours | Theirs = Ours() if side == "hloom" else Theirs()
    executable: Any = None
    run: Any = None

    def bound(recipe: Recipe) -> Run:
        return platform.bind(executable, arguments(parameters, recipe))

    for line in sys.stdin:
        word, *rest = line.split()
        reply: Any = side
        if word == "compile":
            reply, executable = platform.compile(folder)
        elif word == "recipe":
            finite = (number for number, each in enumerate(RECIPES) if _is_finite(platform.arrays(bound(each))))
            reply = next(finite, None)
        elif word == "step":
            run = run or bound(RECIPES[int(recipe)])
            reply = times(run, float(rest[0]))
        elif word == "result":
            np.savez(results, *map(plain, platform.arrays(run)))
            reply = results
        elif word == "memory":
            reply = peak_bytes()
        print(json.dumps(reply), flush=True)


def _is_finite(arrays: list[Array]) -> bool:
    return all(np.isfinite(plain(array)).all() for array in arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
