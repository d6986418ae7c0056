"""Sizes of the memory hierarchy that loops, kernels and the runtime of the CPU backend assume."""

from __future__ import annotations

CACHE_LINE = 64
"""Bytes of a cache line, and the alignment of arrays that programs allocate."""
L2_BYTES = 1 << 20
"""Bytes of the private cache of a core, into which blocks of operands have to fit."""
