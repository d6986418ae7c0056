"""Runs programs in child processes whose JAX platform is hloom.

As a script, it runs the programs of `run_in_shared_process`: a line of JSON for each on the standard input, and one with
its output and its error on the standard output.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import io
import json
import os
import subprocess
import sys
import textwrap
import traceback

import pytest

pytest.importorskip("jax", reason="needs JAX")
if not any(entry.value == "hloom.jax_plugin" for entry in importlib.metadata.entry_points(group="jax_plugins")):
    pytest.skip("hloom is not installed as a JAX plugin: pip install -e .", allow_module_level=True)


START = "import jax, jax.numpy as jnp, numpy as np\nassert jax.default_backend() == 'hloom'\n"
SHARED_DEVICES = 8


def environment(devices: int) -> dict[str, str]:
    return {**os.environ, "JAX_PLATFORMS": "hloom", "HLOOM_NUM_DEVICES": str(devices)}


def run(program: str, devices: int = 1) -> str:
    """Runs a program and returns its output; fails if the program does."""
    ended = subprocess.run(
        [sys.executable, "-c", START + textwrap.dedent(program)],
        env=environment(devices),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def run_in_shared_process(program: str) -> str:
    """Runs a program on `SHARED_DEVICES` devices and returns its output, as `run` does.

    The process takes seconds to start and runs all such programs, one after the other, each with globals of its own.
    """
    process = _shared_process()
    assert process.stdin is not None and process.stdout is not None
    print(json.dumps(START + textwrap.dedent(program)), file=process.stdin, flush=True)
    reply = process.stdout.readline()
    assert reply, "the shared process has ended"
    output, error = json.loads(reply)
    assert not error, error
    return str(output)


@functools.cache
def _shared_process() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, __file__],
        env={**environment(SHARED_DEVICES), "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )  # it ends when this process does, with its standard input


def main() -> None:
    import jax

    replies = sys.stdout
    for line in sys.stdin:
        output, error = io.StringIO(), ""
        with contextlib.redirect_stdout(output):
            try:
                exec(json.loads(line), {"__name__": "program"})
                jax.effects_barrier()
            except Exception:
                error = traceback.format_exc()
        print(json.dumps([output.getvalue(), error]), file=replies, flush=True)


if __name__ == "__main__":
    main()
