"""Pallas kernels, compiled: `pallas_call` as loops over the blocks of its arrays.

JAX's CPU platform only interprets kernels. Here the lowering rule writes the grid as loops of plain HLO, which the rest
of the compiler fuses, vectorises and runs on several threads. In the order in which to read them:

- `blocks.py`: the blocks of an array, by the index map of its `BlockSpec`;
- `kernel.py`: one iteration, as a function of blocks, and of which earlier values its results depend on;
- `grid.py`: the loops.
"""
