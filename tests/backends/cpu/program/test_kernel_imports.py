"""Kernels are imported while the first program runs."""

import subprocess
import sys

PROGRAM = """
import sys, time
import hloom as hl
MODULES = ["hloom.backends.cpu.kernels." + name for name in ("convolution.convolution", "fft.fft", "sort.top_k")]
assert not {*MODULES} & {*sys.modules}
run = hl.compile("HloModule m ENTRY e { x = f32[64] parameter(0) ROOT y = f32[64] tanh(x) }")
"""


def _run(text: str) -> None:
    subprocess.run([sys.executable, "-c", PROGRAM + text], check=True, timeout=60)


def test_kernels_are_imported_after_the_first_compilation() -> None:
    _run(
        """
deadline = time.monotonic() + 30
while not {*MODULES} <= {*sys.modules}:
    assert time.monotonic() < deadline
    time.sleep(0.001)
"""
    )


def test_a_process_may_fork_and_end_meanwhile() -> None:
    _run(
        """
import os
child = os.fork() if hasattr(os, "fork") else None
text = "HloModule m ENTRY e { x = c64[64] parameter(0) ROOT y = c64[64] fft(x), fft_type=FFT, fft_length={64} }"
hl.compile(text)
if child == 0:
    os._exit(0)
assert not child or os.waitpid(child, 0)[1] == 0
"""
    )
