"""The linear algebra targets that JAX emits for CPUs (`lapack_sgetrf_ffi` etc.), through SciPy's LAPACK.

As in LAPACK, pivots count from 1 and `info` is an s32 for each matrix, which is not zero if the routine failed; the
programs that JAX lowers check it and fill failures with NaN.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

from hloom.runtime.custom_calls.lapack.factorisations import cholesky_target, gesv_target
from hloom.runtime.custom_calls.lapack.spectra import geev_target
from hloom.runtime.custom_calls.lapack.targets import TARGETS, TYPES, call, routine_call, routine_name, signature_of
from hloom.runtime.custom_calls.registry import declare_routine, declare_target
from hloom.runtime.custom_calls.signature import Signature
from hloom.values import Array

__all__ = ["OWN", "TARGETS", "TYPES", "call", "declare", "routine_name", "signature_of", "unpacked_geev"]

OWN: dict[str, Callable[..., Array]] = {"gesv": gesv_target, "cholesky": cholesky_target}
"""The functions of targets that are hloom's own: compiled programs have loops for them, whatever the sizes."""


def unpacked_geev(letter: str) -> Signature:
    """The signature of JAX's target for eigenvectors, which are complex for all element types."""
    signature = signature_of("geev", letter)
    text = signature.text.replace("left: T", "left: complex(T)").replace("right: T", "right: complex(T)")
    return dataclasses.replace(signature, text=text)


@functools.cache
def declare() -> None:
    """Declares all targets, once."""
    for letter in TYPES:
        for name in TARGETS:
            plan, signature = functools.partial(routine_call, name, letter), signature_of(name, letter)
            if name in OWN:
                if letter in "sd":  # targets to which passes lower several calls
                    declare_routine(f"lapack_{letter}{name}", signature, plan)
                    declare_target(f"lapack_{letter}{name}", signature, OWN[name])
            elif name == "geev":
                declare_target(
                    f"lapack_{letter}geev_ffi", unpacked_geev(letter), functools.partial(geev_target, letter)
                )
                declare_routine(f"lapack_{letter}geev", signature, plan)  # the target to which passes lower it
            else:
                declare_routine(f"lapack_{routine_name(name, letter)}_ffi", signature, plan)
