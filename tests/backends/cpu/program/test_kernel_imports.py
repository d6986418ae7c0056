"""A process imports the kernels that its programs need, and no others."""

import os
import subprocess
import sys

PROGRAM = """
import sys
import numpy as np
import hloom as hl
from hloom.literal import Literal

KERNELS = "convolution.convolution convolution.tiled fft.fft linear_algebra.routine products.matmul scatter.scatter sort.sort".split()

def imported():
    return [name for name in KERNELS if f"hloom.backends.cpu.kernels.{name}" in sys.modules]

hl.compile("HloModule m ENTRY e { x = f32[64] parameter(0) ROOT y = f32[64] tanh(x) }")
assert imported() == []
assert {"hloom.passes.spmd.partitioner", "hloom.proto"}.isdisjoint(sys.modules)
hl.compile("HloModule m ENTRY e { x = c64[64] parameter(0) ROOT y = c64[64] fft(x), fft_type=FFT, fft_length={64} }")
assert imported() == ["fft.fft"]
hl.compile(\"\"\"HloModule m ENTRY e { x = f32[1,8,9,18] parameter(0)  w = f32[3,3,1,8] parameter(1)
  ROOT y = f32[1,8,7,16] convolution(x, w), window={size=3x3}, dim_labels=bf01_01io->bf01, feature_group_count=8 }\"\"\")
assert imported() == ["convolution.convolution", "fft.fft"]
hl.compile(\"\"\"HloModule m ENTRY e { x = bf16[64,64] parameter(0)  y = bf16[64,64] parameter(1)
  ROOT z = f32[64,64] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0} }\"\"\")
assert imported() == ["convolution.convolution", "fft.fft", "products.matmul"]
assert not [name for name in sys.modules if "products.matvec" in name or "products.split.split" in name]
Literal.from_numpy(np.ones(3, np.float32))
assert "numpy.ma" not in sys.modules
"""


def test_kernels_are_imported_when_a_program_needs_them() -> None:
    """Nothing is loaded from disk, since code that is kept there needs no emitter."""
    environment = {**os.environ, "HLOOM_CACHE_DIR": ""}
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=60, env=environment)
