"""hloom as a JAX platform: JAX calls `initialize` of every plugin that an installed package advertises.

`JAX_PLATFORMS=hloom python train.py` then runs an unmodified program on hloom. `HLOOM_NUM_DEVICES` sets the number of
virtual devices.
"""

from __future__ import annotations

import ctypes

PRIORITY = -100
"""Below XLA's CPU: hloom is used where it is asked for, not because it is installed."""


def initialize() -> None:
    """Registers the platform; nothing heavy happens before JAX makes a client of it."""
    from jax._src import xla_bridge

    from hloom.jax_plugin import dlpack
    from hloom.jax_plugin.lowerings import register_lowerings
    from hloom.pjrt import api_address

    xla_bridge._nonexperimental_plugins.add("hloom")
    xla_bridge.register_plugin("hloom", priority=PRIORITY, c_api=_capsule(api_address()))
    register_lowerings()
    dlpack.install()


def _capsule(address: int) -> object:
    """What JAX takes a PJRT_Api as."""
    from hloom.runtime.python_api import python_function

    new = python_function("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return new(address, _NAME, None)


_NAME = b"pjrt_c_api"  # the capsule keeps its address
