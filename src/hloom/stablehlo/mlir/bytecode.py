"""Converts MLIR bytecode and portable artifacts of StableHLO to text and back, by jaxlib in a child process.

MLIR may end its process on damaged bytes; this way only the child ends, and the caller gets an error. The child runs
this file as a script, `python -m hloom.stablehlo.mlir.bytecode read|write`.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from typing import Any

from hloom.errors import ArgumentError, HloomError, ProtoError

TIMEOUT = 300.0
"""Time limit of the child, in seconds."""


def text_of(content: bytes) -> str:
    """The text of a module in bytecode or of a portable artifact.

    Raises ProtoError for damaged bytes, ArgumentError without jaxlib or after TIMEOUT.
    """
    return _run_child("read", content, ProtoError("the bytes are no StableHLO bytecode that jaxlib reads")).decode()


def bytecode_of(text: str) -> bytes:
    """The portable artifact of a module in text.

    Raises ArgumentError for text that jaxlib refuses, without jaxlib, or after TIMEOUT.
    """
    return _run_child("write", text.encode(), ArgumentError("jaxlib makes no bytecode of this module"))


def _run_child(task: str, content: bytes, failure: HloomError) -> bytes:
    if importlib.util.find_spec("jaxlib") is None:
        raise ArgumentError("StableHLO bytecode is read and written by jaxlib, which is missing: pip install jaxlib")
    command = [sys.executable, "-m", "hloom.stablehlo.mlir.bytecode", task]
    try:
        child = subprocess.run(command, input=content, capture_output=True, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        raise ArgumentError(f"jaxlib took more than {TIMEOUT:.0f} s over StableHLO bytecode") from None
    if child.returncode == 0:
        return child.stdout
    reason = child.stderr.decode("utf-8", "replace").strip().split("\n")[-1]
    raise failure.at(f"jaxlib: {reason}" if child.returncode > 0 and reason else "jaxlib: its process ended")


# The child


def _context() -> Any:
    from jaxlib.mlir import ir
    from jaxlib.mlir._mlir_libs import _jax_mlir_ext
    from jaxlib.mlir.dialects import chlo, sdy, stablehlo

    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context = ir.Context()
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    stablehlo.register_dialect(context)
    sdy.register_dialect(context)
    chlo.register_dialect(context)
    context.allow_unregistered_dialects = True
    return context


def read_bytecode(content: bytes) -> bytes:
    """The text (UTF-8) of a module in bytecode, by jaxlib in this process: for bytes from a trusted source only."""
    from jaxlib import _jax
    from jaxlib.mlir import ir

    with _context() as context:
        # A portable artifact has the producer StableHLO_v.. and a versioned dialect.
        is_artifact = b"StableHLO_v" in content[:64]
        module = _jax.mlir.deserialize_portable_artifact(content) if is_artifact else ir.Module.parse(content, context)
        text = module.operation.get_asm(enable_debug_info=True)
    return str(text).encode()


def _write(content: bytes) -> bytes:
    from jaxlib import _jax
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    with _context() as context:
        module = ir.Module.parse(content.decode(), context)
        version = stablehlo.get_current_version()
        # CHLO has no versioned dialect: with mixed serialisation, the artifact has both, as in JAX.
        mixed = b" chlo." in content or b'"chlo.' in content
        artifact: bytes = _jax.mlir.serialize_portable_artifact(module, version, use_mixed_serialization=mixed)
    return artifact


if __name__ == "__main__":
    try:
        result = (read_bytecode if sys.argv[1] == "read" else _write)(sys.stdin.buffer.read())
    except Exception as error:
        sys.exit(str(error).strip().replace("\n", " ")[:400])
    sys.stdout.buffer.write(result)
