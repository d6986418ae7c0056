"""Scans along the minor dimension: prefixes inside vector registers; rows, or blocks of a row, on several threads."""

from __future__ import annotations

from hloom.backends.cpu.kernels.code import KernelCode, aligned, code_of, entry_function
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, task_function
from hloom.backends.cpu.kernels.scans.scan import BLOCK, Elements, Scan, ScanState, flat, select
from hloom.lir import I64, PTR, IndexValue, Value, vector_constant
from hloom.target import L2_BYTES, Target

MIN_BLOCKS_PER_THREAD = 4
"""Blocks for each thread from which a row is divided among threads."""


class ScanAlong:
    """Writes the functions of a scan whose rows are contiguous."""

    def __init__(self, name: str, scan: Scan, target: Target) -> None:
        self.name, self.scan = name, scan
        self.lanes = target.vector_bytes * 8 // max(32, *(register.bits for register in scan.registers(0)))
        self.vectors, self.rest = divmod(scan.size, self.lanes)
        self.blocks = -(-self.vectors // BLOCK)
        threads = target.threads if scan.is_parallel(target) else 1
        self.splits_rows = scan.outer < threads and self.blocks >= MIN_BLOCKS_PER_THREAD * threads
        self.parts = threads if self.splits_rows else 1
        block_bytes = BLOCK * self.lanes * sum(type.byte_width for type in scan.types)
        self.section = self.parts * max(MIN_BLOCKS_PER_THREAD, L2_BYTES // 2 // block_bytes)
        """Blocks that the threads reduce and then scan, while their caches hold them."""
        self.shares = 1 if self.splits_rows or threads == 1 else target.tasks(scan.outer)
        self.words = [f"{group}{k}" for group in ("operand", "initial", "result") for k in range(len(scan.types))]
        self.state_bytes = [
            aligned(register.width * max(8, register.bits) // 8) for register in scan.registers(self.lanes)
        ]
        self.total_bytes = sum(self.state_bytes)

    def code(self) -> KernelCode:
        """Returns the code of the scan."""
        f = entry_function(self.name, self.scan.instruction)
        f.run_chunks(f"{self.name}.rows", f.pack(*f.parameters), self.shares, f.threads)
        functions = [self._rows(), f]
        if self.splits_rows:
            functions += [self._totals(), self._results()]
        return code_of(self.name, functions, (self.blocks + 1) * self.total_bytes if self.splits_rows else 0)

    def _rows(self) -> KernelFunction:
        """Writes the task that scans a share of the rows."""
        f = task_function(f"{self.name}.rows")
        count = len(self.scan.types)
        *arrays, scratch, pool, parallel_for = f.unpack(f["context"], *[PTR] * (3 * count + 3))
        initial = self.scan.load_initial(f, arrays[count : 2 * count], self.lanes)
        first, length = f.share(self.scan.outer, 1, self.shares, f["chunk"])
        with f.each(first, f.add(first, length)) as row_index:
            start = f.multiply(row_index, self.scan.size)
            row = [a for group in (arrays[:count], arrays[2 * count :]) for a in self.scan.addresses(f, group, start)]
            before = ScanState(f, self.scan, initial)
            if self.splits_rows:
                with f.each(0, self.blocks, self.section) as block:
                    end = f.minimum(f.add(block, self.section), self.blocks)
                    context = f.pack(*row, *arrays[count : 2 * count], scratch, f.index(block), f.index(end))
                    f.run_chunks(f"{self.name}.totals", context, self.parts, (pool, parallel_for))
                    self._prefix_totals(f, scratch, before, (block, end))
                    f.run_chunks(f"{self.name}.results", context, self.parts, (pool, parallel_for))
            else:
                with f.each(0, self.blocks) as block:
                    total = self._block(f, row, block, initial, before.get())
                    before.set(self.scan.extended(f, before.get(), total, block))
            if self.rest:
                self._tail(f, row, initial, before.get())
        return f

    # One row on many threads

    def _task(self, phase: str) -> tuple[KernelFunction, list[Value], Elements, Value, IndexValue, IndexValue]:
        """Returns a task, the row, the initial value, the scratch, and the blocks of its part of a section."""
        f = task_function(f"{self.name}.{phase}")
        count = len(self.scan.types)
        *pointers, scratch, start, end = f.unpack(f["context"], *[PTR] * (3 * count + 1), I64, I64)
        initial = self.scan.load_initial(f, pointers[2 * count :], self.lanes)
        first, length = f.share(f.subtract(end, start), 1, self.parts, f["chunk"])
        first = f.add(start, first)
        return f, pointers[: 2 * count], initial, scratch, first, f.add(first, length)

    def _totals(self) -> KernelFunction:
        """Writes the task that reduces each block."""
        f, row, _, scratch, first, last = self._task("totals")
        with f.each(first, last) as block:
            self._put_total(f, scratch, block, self._block(f, row, block, None, None))
        return f

    def _prefix_totals(
        self, f: KernelFunction, scratch: Value, before: ScanState, blocks: tuple[IndexValue, IndexValue]
    ) -> None:
        """Replaces the reduction of each block by the reduction of all preceding blocks."""
        with f.each(*blocks) as block:
            total, preceding = self._total(f, scratch, block), before.get()
            self._put_total(f, scratch, block, preceding)
            before.set(self.scan.extended(f, preceding, total, block))

    def _results(self) -> KernelFunction:
        f, row, initial, scratch, first, last = self._task("results")
        with f.each(first, last) as block:
            self._block(f, row, block, initial, self._total(f, scratch, block))
        return f

    def _total_addresses(self, f: KernelFunction, scratch: Value, block: IndexValue) -> list[Value]:
        start = f.at(scratch, f.multiply(block, self.total_bytes), "i8")
        offsets = [sum(self.state_bytes[:k]) for k in range(len(self.state_bytes))]
        return [f.at(start, offset, "i8") for offset in offsets]

    def _put_total(self, f: KernelFunction, scratch: Value, block: IndexValue, total: Elements) -> None:
        for address, value in zip(self._total_addresses(f, scratch, block), flat(total), strict=True):
            f.store(value, address, 64)

    def _total(self, f: KernelFunction, scratch: Value, block: IndexValue) -> Elements:
        addresses = self._total_addresses(f, scratch, block)
        registers = self.scan.registers(self.lanes)
        return self.scan.grouped([f.load(p, register, 64) for p, register in zip(addresses, registers, strict=True)])

    # Blocks and vectors

    def _block(
        self, f: KernelFunction, row: list[Value], block: IndexValue, initial: Elements | None, before: Elements | None
    ) -> Elements:
        """Scans a block of whole vectors; returns its reduction, in all lanes. Without `before` nothing is stored.

        The reduction by a monoid is that of vectors, whose lanes are reduced once. Otherwise a vector has in each lane
        the reduction of a window, the elements up to the lane's own in this vector and the one before, as many as there
        are lanes: the running reduction combines it with that of the vector before, in the same lane.
        """
        scan, is_monoid = self.scan, self.scan.monoid is not None

        def step(vector: IndexValue, sums: Elements | None, states: list[Elements]) -> list[Elements]:
            position = f.multiply(vector, self.lanes)
            if scan.backward:
                position = f.subtract(scan.size - self.lanes, position)
            values = self._load(f, row, position, None)
            sums = scan.combine(f, sums, values) if sums and is_monoid else values
            if before is None and is_monoid:
                return [sums]
            *windows, running = self._windows(f, values, states[1:])
            running = scan.combine(f, states[0], running) if states else running
            if before is not None and initial is not None:
                self._store(f, scan.result(f, initial, before, running, block), row, position, None)
            return [sums, running, *windows]

        first = f.multiply(block, BLOCK)
        states = [ScanState(f, scan, part) for part in step(first, None, [])]
        with f.each(f.add(first, 1), f.minimum(f.add(first, BLOCK), self.vectors)) as vector:
            sums, *others = [state.get() for state in states]
            for state, part in zip(states, step(vector, sums, others), strict=True):
                state.set(part)
        return self._last(f, self._prefix(f, states[0].get()) if is_monoid else states[1].get())

    def _tail(self, f: KernelFunction, row: list[Value], initial: Elements, before: Elements) -> None:
        """Scans the elements after the last whole vector; in a backward scan they are the upper lanes of a vector."""
        lanes = range(self.lanes)
        if self.scan.backward:
            position, inside = self.rest - self.lanes, [lane >= self.lanes - self.rest for lane in lanes]
        else:
            position, inside = self.vectors * self.lanes, [lane < self.rest for lane in lanes]
        mask = _mask(inside)
        running = self._prefix(f, self._load(f, row, position, mask))
        self._store(f, self.scan.result(f, initial, before, running, self.blocks), row, position, mask)

    def _prefix(self, f: KernelFunction, values: Elements) -> Elements:
        """Returns the running reduction inside a vector."""
        return self._windows(f, values, [])[-1]

    def _windows(self, f: KernelFunction, values: Elements, before: list[Elements]) -> list[Elements]:
        """Returns the reductions of the last 1, 2, 4 .. elements up to each lane, in log2(lanes) steps.

        `before` has those of the vector before, but for the last; without it windows end at the vector's first element.
        """
        windows, distance = [values], 1
        while distance < self.lanes:
            step = distance if self.scan.backward else -distance
            sources = [lane + step for lane in range(self.lanes)]
            moved = self._moved(f, windows[-1], before[len(windows) - 1] if before else None, sources)
            both = self.scan.combine(f, moved, windows[-1])
            mask = _mask([lane in range(self.lanes) for lane in sources])
            windows.append(both if before else select(f, mask, both, windows[-1]))
            distance *= 2
        return windows

    def _moved(self, f: KernelFunction, values: Elements, before: Elements | None, sources: list[int]) -> Elements:
        """Moves lanes from `sources`: those outside of a vector are of the one before, in the order of the scan."""
        if before is None:
            lanes = [lane if lane in range(self.lanes) else k for k, lane in enumerate(sources)]
            return self.scan.grouped([f.shuffle(part, None, lanes) for part in flat(values)])
        first, second = (values, before) if self.scan.backward else (before, values)
        lanes = [lane + (0 if self.scan.backward else self.lanes) for lane in sources]
        pairs = zip(flat(first), flat(second), strict=True)
        return self.scan.grouped([f.shuffle(a, b, lanes) for a, b in pairs])

    def _last(self, f: KernelFunction, values: Elements) -> Elements:
        lane = 0 if self.scan.backward else self.lanes - 1
        return self.scan.grouped([f.shuffle(part, None, [lane] * self.lanes) for part in flat(values)])

    def _load(self, f: KernelFunction, row: list[Value], position: IndexValue, mask: Value | None) -> Elements:
        return self.scan.load(f, row[: len(self.scan.types)], position, self.lanes, mask)

    def _store(
        self, f: KernelFunction, values: Elements, row: list[Value], position: IndexValue, mask: Value | None
    ) -> None:
        self.scan.store(f, values, row[len(self.scan.types) :], position, mask)


def _mask(lanes: list[bool]) -> Value:
    return vector_constant("i1", lanes)
