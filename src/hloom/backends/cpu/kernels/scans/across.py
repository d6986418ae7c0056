"""Scans along another dimension than the minor one: tiles of vectors are reduced row by row."""

from __future__ import annotations

from hloom.backends.cpu.kernels.code import KernelCode, code_of, entry_function
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, task_function
from hloom.backends.cpu.kernels.scans.scan import BLOCK, Elements, Scan, flat
from hloom.lir import PTR, IndexValue, Value
from hloom.target import Target

MAX_TILE_VECTORS = 64
"""Vectors of a row that are reduced together, so that their running reductions stay in the cache."""


class ScanAcross:
    """Writes the functions of a scan with `inner` > 1."""

    def __init__(self, name: str, scan: Scan, target: Target) -> None:
        self.name, self.scan = name, scan
        threads = target.threads if scan.is_parallel(target) else 1
        widest = target.vector_bytes * 8 // max(32, *(register.bits for register in scan.registers(0)))
        self.lanes = min(widest, 1 << (scan.inner - 1).bit_length())
        vectors = -(-scan.inner // self.lanes)
        wanted = -(-threads // scan.outer) if threads > 1 else 1
        self.tile_vectors = max(1, min(MAX_TILE_VECTORS, vectors // wanted))
        self.tiles = -(-vectors // self.tile_vectors)
        self.is_masked = scan.inner % self.lanes != 0
        self.threads = threads

    def code(self) -> KernelCode:
        """Returns the code of the scan."""
        f = entry_function(self.name, self.scan.instruction)
        tasks = self.scan.outer * self.tiles
        f.run_chunks(f"{self.name}.tile", f.pack(*f.parameters), tasks, f.threads_if(self.threads > 1))
        return code_of(self.name, [_Tile(self).function(), f])


class _Tile:
    """The task of one tile of a row of vectors; for each vector, `running` holds the reduction of the current block,
    `before` that of the preceding blocks.
    """

    def __init__(self, kernel: ScanAcross) -> None:
        self.kernel, self.scan, self.lanes = kernel, kernel.scan, kernel.lanes
        self.f = f = task_function(f"{kernel.name}.tile")
        self.registers = self.scan.registers(self.lanes)
        self.running, self.before = (
            [f.slot(register, kernel.tile_vectors) for register in self.registers] for _ in range(2)
        )

    def function(self) -> KernelFunction:
        f, scan, kernel = self.f, self.scan, self.kernel
        count = len(scan.types)
        arrays = f.unpack(f["context"], *[PTR] * (3 * count))
        initial = scan.load_initial(f, arrays[count : 2 * count], self.lanes)
        row, tile = f.divide(f["chunk"], kernel.tiles), f.remainder(f["chunk"], kernel.tiles)
        column = f.multiply(tile, kernel.tile_vectors * self.lanes)
        start = f.add(f.multiply(row, scan.size * scan.inner), column)
        self.source, self.target = (scan.addresses(f, a, start) for a in (arrays[:count], arrays[2 * count :]))
        self.columns = f.subtract(scan.inner, column)
        self.vectors = f.minimum(kernel.tile_vectors, f.ceil_divide(self.columns, self.lanes))
        with f.each(0, self.vectors) as vector:
            self._put(self.before, vector, initial)
        with f.each(0, -(-scan.size // BLOCK)) as block:
            self._block(block, initial)
        return f

    def _block(self, block: Value, initial: Elements) -> None:
        f, scan = self.f, self.scan
        first = f.multiply(block, BLOCK)
        self._step(block, first, initial, is_first=True)
        with f.each(f.add(first, 1), f.minimum(f.add(first, BLOCK), scan.size)) as index:
            self._step(block, index, initial, is_first=False)
        with f.each(0, self.vectors) as vector:
            before, running = self._get(self.before, vector), self._get(self.running, vector)
            self._put(self.before, vector, scan.extended(f, before, running, block))

    def _step(self, block: Value, index: IndexValue, initial: Elements, is_first: bool) -> None:
        """Adds one row to the reductions of the block, and stores its results."""
        f, scan = self.f, self.scan
        row = f.subtract(scan.size - 1, index) if scan.backward else index
        with f.each(0, self.vectors) as vector:
            column = f.multiply(vector, self.lanes)
            offset = f.add(f.multiply(row, scan.inner), column)
            mask = f.first_lanes(f.subtract(self.columns, column), self.lanes) if self.kernel.is_masked else None
            running = scan.load(f, self.source, offset, self.lanes, mask)
            if not is_first:
                running = scan.combine(f, self._get(self.running, vector), running)
            self._put(self.running, vector, running)
            results = scan.result(f, initial, self._get(self.before, vector), running, block)
            scan.store(f, results, self.target, offset, mask)

    def _get(self, slots: list[Value], vector: IndexValue) -> Elements:
        f = self.f
        loads = [f.load(f.at(s, vector, str(r)), r, 1) for s, r in zip(slots, self.registers, strict=True)]
        return self.scan.grouped(loads)

    def _put(self, slots: list[Value], vector: IndexValue, values: Elements) -> None:
        f = self.f
        for slot, register, value in zip(slots, self.registers, flat(values), strict=True):
            f.store(value, f.at(slot, vector, str(register)), 1)
