"""The plan of a transform: steps, each of which transforms many interleaved sequences, in stages of one radix.

Short sequences take one step. A longer one is a matrix [a][b]: the first step transforms its columns in place, and
multiplies element k of column j by w^(j k); the second one transforms its rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from hloom.numerics import roots_of_unity
from hloom.passes.legalize.fft_lengths import radices_of
from hloom.system.lazy import cached_property
from hloom.system.records import record

BUFFER = 64
"""Elements between stages: with the widest vectors, 8 KB of real parts, and as many of imaginary ones."""

Factors = Literal["none", "of rows", "of all"]
"""The factors that a stage multiplies by: none, those of results 1, 2 .. for each row, or of all results."""


@record
class Stage:
    """A matrix of butterflies, with distances before and after: of rows, columns and elements of a butterfly, and of
    what is prefetched, which is the next row, or the next column of one row.
    """

    radix: int
    factors: Factors
    rows: int
    columns: int
    source: tuple[int, int, int, int]
    target: tuple[int, int, int, int]


@record
class Step:
    """Transforms of `sequences` of length n, `count` at a time.

    `source` and `target` have the distances of elements and of sequences. With a twiddle, element k of sequence j is
    multiplied by w^(j k), where w is a root of unity of order n times `sequences`.
    """

    radices: tuple[int, ...]
    sequences: int
    source: tuple[int, int]
    target: tuple[int, int]
    has_twiddle: bool = False

    @property
    def n(self) -> int:
        """The length."""
        return math.prod(self.radices)

    @property
    def count(self) -> int:
        """The number of sequences that the buffer holds; all, if there is nothing between stages."""
        most = BUFFER // self.n if len(self.radices) > 1 else self.sequences
        return next(count for count in range(max(1, most), 0, -1) if self.sequences % count == 0)

    @property
    def batches(self) -> int:
        """Repetitions of the stages."""
        return self.sequences // self.count

    @property
    def buffers(self) -> int:
        """Buffers between stages, written in turns."""
        return min(len(self.radices) - 1, 2)

    def stages(self) -> Iterator[Stage]:
        """Yields the stages.

        Between them, element e of the q-th sequence is at e `count` + q. A stage makes r sequences of m elements of
        each of r m elements, `interleaved` with others.
        """
        m, interleaved, last = self.n, 1, len(self.radices) - 1
        for position, radix in enumerate(self.radices):
            m //= radix
            width = interleaved * self.count
            if position < last:
                rows, columns, target = m, width, (radix * width, 1, width, 0)
                factors: Factors = "of rows"
            else:
                # m is 1: the rows are the interleaved sequences.
                rows, columns = interleaved, self.count
                (element, sequence) = self.target
                target = (element, sequence, interleaved * element, element if rows > 1 else sequence)
                factors = "of all" if self.has_twiddle else "none"
            if position == 0:
                element, sequence = self.source
                source = (element, sequence, m * element, element if rows > 1 else sequence)
            else:
                source = (width if position < last else self.count, 1, m * width, 0)
            yield Stage(radix, factors, rows, columns, source, target)
            interleaved *= radix

    @cached_property
    def factors(self) -> tuple[np.ndarray[Any, Any], ...]:
        """The factors of each stage; a twiddle's are those of all batches."""
        return tuple(self._factors_of(stage) for stage in self.stages())

    def _factors_of(self, stage: Stage) -> np.ndarray[Any, Any]:
        if stage.factors == "none":
            return np.zeros(0, np.complex128)
        if stage.factors == "of rows":
            powers = np.outer(np.arange(stage.rows), np.arange(1, stage.radix))
            return roots_of_unity(powers, stage.rows * stage.radix)
        batch, row, column, k = np.ogrid[: self.batches, : stage.rows, : stage.columns, : stage.radix]
        powers = (row + k * stage.rows) * (batch * self.count + column)
        return roots_of_unity(powers, self.n * self.sequences)


def steps_of(n: int) -> tuple[Step, ...]:
    """Returns the steps of a transform of length n, without prime factors beyond the largest radix."""
    radices = radices_of(n) or (1,)
    if n <= BUFFER:
        return (Step(radices, 1, (1, 0), (1, 0)),)
    split = min(range(1, len(radices)), key=lambda k: max(math.prod(radices[:k]), math.prod(radices[k:])))
    a, b = math.prod(radices[:split]), math.prod(radices[split:])
    return Step(radices[:split], b, (b, 1), (b, 1), has_twiddle=True), Step(radices[split:], a, (1, b), (a, 1))
