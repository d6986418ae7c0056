"""hloom's side of the comparison: parsing, printing and running, in a process of its own."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from typing import Any

import numpy as np

MAX = 1 << 27  # bytes of all arguments; larger programs are not run
RUNS, SECONDS = 5, 0.3
RANDOM = {"rng", "rng-get-and-update-state"}


def make() -> Any:
    """Returns the handler of a worker process."""
    return Mine().handle


class Mine:
    """The module of the last request, and its arguments."""

    module: Any
    arguments: list[list[Any]]

    def handle(self, request: tuple[Any, ...]) -> dict[str, Any]:
        from hloom.errors import HloomError

        kind, *rest = request
        try:
            return getattr(self, kind)(*rest)
        except HloomError as error:
            return {"error": " ".join(str(error).split())[:600]}
        except Exception as error:
            return {"error": f"bare {type(error).__name__}: {error}"[:600]}

    def load(self, text: str, again: str | None = None) -> dict[str, Any]:
        """Parses a text, and compares the module with that of the text that hloom prints, and that XLA prints.

        StableHLO is also exported to StableHLO and parsed; `written` are the texts that hloom prints.
        """
        import hloom
        from hloom.files.formats import Format, text_format

        start = time.perf_counter()
        self.module = module = hloom.parse(text)
        seconds = time.perf_counter() - start
        written = [module.to_text()]
        difference = _difference(module, written[0])
        if text_format(text) is Format.MLIR:
            difference = difference or _comes_back(module, written)
        elif not difference and again is not None:
            difference = _difference(module, again, "as XLA prints it: ")
        return {
            "seconds": seconds,
            "difference": difference,
            "written": written,
            "devices": self._devices(),
            "random": self._random(),
        }

    def _devices(self) -> tuple[int, int]:
        from hloom.verifier.runnable import devices_needed

        replicas, partitions = devices_needed(self.module)
        self.module.num_partitions = partitions
        return replicas, partitions

    def _random(self) -> bool:
        return any(instruction.opcode in RANDOM for instruction in self.module.instructions())

    def draw(self, seed: int, replicas: int, partitions: int) -> dict[str, Any]:
        """Returns random arguments for each device, tuples flattened, and the text with elided constants filled, if
        there are any.
        """
        from hloom.files.arrays import flat, random_value
        from hloom.files.elided import fill_elided

        shapes = [parameter.shape for parameter in self.module.entry.parameters]
        size = sum(leaf.element_count * max(leaf.element_type.bits // 8, 1) for s in shapes for leaf in s.leaves())
        if size * replicas * partitions > MAX:
            return {"error": f"its arguments take {size:,} bytes"}
        text = None
        if any(instruction.opcode == "elided-constant" for instruction in self.module.instructions()):
            self.module = fill_elided(self.module, seed)
            text = self.module.to_text()
        rng = np.random.default_rng(seed)
        self.arguments = [[random_value(rng, shape) for shape in shapes] for _ in range(replicas * partitions)]
        arguments = [[leaf for value in mine for leaf in flat(value)] for mine in self.arguments]
        return {"arguments": arguments, "text": text}

    def run(self, backend: str, replicas: int, expected: list[list[Any]] | None, timed: bool) -> dict[str, Any]:
        """Runs the module, compares the results with the expected ones, and returns the median time of a run in
        seconds.
        """
        import hloom
        from hloom.files.arrays import flat

        start = time.perf_counter()
        executable = hloom.compile(self.module, backend, replicas=replicas, seed=0)
        compiling = time.perf_counter() - start
        seconds, end = [], time.perf_counter() + SECONDS
        while not seconds or (timed and (len(seconds) < 2 or (len(seconds) < RUNS and time.perf_counter() < end))):
            start = time.perf_counter()
            results = executable.run_replicas(self.arguments)
            seconds.append(time.perf_counter() - start)
        difference = ""
        if expected is not None:
            difference = next(filter(None, (_apart(flat(r), e) for r, e in zip(results, expected))), "")
        return {
            "seconds": statistics.median(seconds),
            "compiling": compiling,
            "difference": difference,
            "host": executable.report(),
        }


def _difference(module: Any, text: str, what: str = "") -> str:
    import hloom
    from compare_graphs import difference
    from hloom.errors import HloomError
    from hloom.text.printer import fingerprint

    try:
        other = hloom.parse(text)
    except HloomError as error:
        return what + " ".join(str(error).split())[:400]
    if not what:
        return difference(module, other) or ""
    # XLA names unnamed instructions and orders them differently: compare the semantics, and dead instructions.
    same = _opcodes(other) == _opcodes(module) and fingerprint(_alive(other)) == fingerprint(_alive(module))
    return "" if same else what + "the graph is another"


def _comes_back(module: Any, written: list[str]) -> str:
    """Exports to StableHLO, appends the text to `written`, and parses it; returns the error, if any."""
    import hloom
    from hloom.errors import HloomError
    from hloom.stablehlo.exporter.module import print_stablehlo

    try:
        written.append(print_stablehlo(module))
        hloom.parse(written[-1])
    except HloomError as error:
        return "as StableHLO: " + " ".join(str(error).split())[:400]
    return ""


def _opcodes(module: Any) -> Counter[tuple[str, str]]:
    return Counter((instruction.opcode, str(instruction.shape)) for instruction in module.instructions())


def _alive(module: Any) -> Any:
    """A copy without dead code."""
    from hloom.passes import clone_module
    from hloom.passes.simplify.dead_code import DeadCodeElimination

    copy = clone_module(module)
    DeadCodeElimination().run(copy)
    return copy


def _apart(got: list[Any], want: list[Any]) -> str:
    from hloom.files.arrays import difference
    from hloom.types import BY_DTYPE

    if len(got) != len(want):
        return f"{len(got)} results, expected {len(want)}"
    for i, (g, w) in enumerate(zip(got, want)):
        element_type = BY_DTYPE[g.dtype]
        tolerance = scale = 0.0
        if (element_type.is_float or element_type.is_complex) and g.dtype == w.dtype and w.size:
            tolerance = _tolerance(element_type)
            magnitudes = np.abs(w.astype(np.complex128 if element_type.is_complex else np.float64))
            scale = float(np.max(magnitudes, where=np.isfinite(magnitudes), initial=0.0))
        message = difference(g, w, tolerance, tolerance * scale)
        if message:
            return f"result {i} {message}"
    return ""


def _tolerance(element_type: Any) -> float:
    """The tolerance against XLA's results, relative to the element and to the largest element of its array."""
    import ml_dtypes

    part = element_type.real if element_type.is_complex else element_type
    eps = float(ml_dtypes.finfo(part.dtype).eps)
    return 4 * eps if eps > 1e-5 else 1e-4 if eps > 1e-10 else 1e-9
