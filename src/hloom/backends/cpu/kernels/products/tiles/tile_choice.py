"""Tiles of products: as many sums as registers hold, of rows and vectors that fit the result."""

from __future__ import annotations

import math

from hloom.backends.cpu.kernels.products.tiles.tile import Tile
from hloom.backends.cpu.llvm.processor import processor
from hloom.lir import Type

MAX_ACCUMULATORS = {64: 28, 32: 12, 16: 16, 8: 8}  # vector registers for sums, by the bytes of a vector
# Registers for sums and a row of B. The others are for factors: with fewer than two, LLVM moves sums between registers
# in the loop, and 64-byte multiply-adds load each factor from memory anew, which exceeds two loads a cycle.
MAX_SUMS_AND_ROW = {64: 28, 32: 14, 16: 30, 8: 12}
WEB_ACCUMULATORS, WEB_SUMS_AND_ROW = 8, 10  # engines for WebAssembly on x86-64 have 15 registers, and move sums early
MAX_VECTORS = 6  # in a row of the tile
REGISTER_ROWS = 16
TILE_REGISTERS = 5
"""The registers in use, of eight. The two threads of a core share the registers behind them: while both are busy, loads
and products wait for each other, so that a thread has a quarter of its rate with eight registers, half of it with five.
"""


def max_accumulators(vector_bytes: int) -> int:
    """Returns the number of vector registers for sums."""
    return WEB_ACCUMULATORS if processor().architecture == "wasm32" else MAX_ACCUMULATORS[_key(vector_bytes)]


def _max_sums_and_row(vector_bytes: int) -> int:
    return WEB_SUMS_AND_ROW if processor().architecture == "wasm32" else MAX_SUMS_AND_ROW[_key(vector_bytes)]


def _key(vector_bytes: int) -> int:
    """Returns 32 for shorter vectors in as many registers, the 16 of x86-64 before AVX-512."""
    return (
        max(vector_bytes, 32)
        if processor().architecture == "x86_64" and processor().vector_bytes < 64
        else vector_bytes
    )


def cheapest_tile(m: int, n: int, vector: Type, vector_bytes: int, min_vectors: int = 1) -> Tile:
    """Returns the cheapest tile of a result of m rows and n columns, by the multiply-adds of all tiles, at least ten
    each to hide latency, and loads.
    """

    def cost(tile: Tile) -> float:
        tiles = math.ceil(m / tile.rows) * math.ceil(n / tile.columns)
        return tiles * (max(tile.rows * tile.vectors, 10) + 0.25 * (tile.rows + tile.vectors))

    candidates = [
        Tile(rows, vectors, vector)
        for vectors in range(min_vectors, min(math.ceil(n / vector.width), MAX_VECTORS) + 1)
        for rows in range(1, min(m, max_accumulators(vector_bytes) // vectors) + 1)
        if (rows + 1) * vectors <= _max_sums_and_row(vector_bytes)
    ]
    return min(candidates, key=cost)


def cheapest_tile_of_registers(m: int, n: int, vector: Type) -> Tile:
    """Returns the cheapest tile in tile registers, by their rows: those multiplied, or those loaded, for 16 words of K.

    Rows of B are in the first cache, two of which are loaded at a time; those of A come from the second one.
    """

    def cost(tile: Tile) -> float:
        tiles = math.ceil(m / tile.rows) * math.ceil(n / tile.columns)
        loads = tile.rows + tile.vectors * REGISTER_ROWS / 2
        return tiles * (max(tile.rows * tile.vectors, loads) + 4)

    candidates = [
        Tile(parts * rows, vectors, vector)
        for parts in range(1, TILE_REGISTERS)
        for vectors in range(1, TILE_REGISTERS)
        for rows in range(REGISTER_ROWS * (parts - 1) // parts + 1, REGISTER_ROWS + 1)
        if parts * vectors + 1 + vectors <= TILE_REGISTERS
    ]
    return min(candidates, key=cost)
