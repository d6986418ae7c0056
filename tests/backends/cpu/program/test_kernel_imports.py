"""A process imports the kernels that its programs need, and no others."""

import os
import subprocess
import sys

PROGRAM = """
import sys
import hloom as hl

KERNELS = "convolution.convolution fft.fft linear_algebra.routine products.matmul scatter.scatter sort.sort".split()

def imported():
    return [name for name in KERNELS if f"hloom.backends.cpu.kernels.{name}" in sys.modules]

hl.compile("HloModule m ENTRY e { x = f32[64] parameter(0) ROOT y = f32[64] tanh(x) }")
assert imported() == []
assert "hloom.passes.spmd.partitioner" not in sys.modules
hl.compile("HloModule m ENTRY e { x = c64[64] parameter(0) ROOT y = c64[64] fft(x), fft_type=FFT, fft_length={64} }")
assert imported() == ["fft.fft"]
"""


def test_kernels_are_imported_when_a_program_needs_them() -> None:
    """Nothing is loaded from disk, since code that is kept there needs no emitter."""
    environment = {**os.environ, "HLOOM_CACHE_DIR": ""}
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=60, env=environment)
