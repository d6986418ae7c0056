"""hloom as a JAX platform: JAX calls `initialize` of all installed plugins.

`JAX_PLATFORMS=hloom python train.py` then runs an unmodified program on hloom. `HLOOM_NUM_DEVICES` sets the number of
virtual devices.
"""

from __future__ import annotations

import ctypes

PRIORITY = -100
"""Below XLA's CPU backend: hloom has to be requested, and is not chosen because it is installed."""


def initialize() -> None:
    """Registers the platform. Expensive work waits until JAX creates a client."""
    from jax._src import xla_bridge

    from hloom.jax_plugin import dlpack
    from hloom.jax_plugin.lowerings import register_lowerings
    from hloom.pjrt import api_address

    xla_bridge._nonexperimental_plugins.add("hloom")
    xla_bridge.register_plugin("hloom", priority=PRIORITY, c_api=_capsule(api_address()))
    register_lowerings()
    dlpack.install()


def _capsule(address: int) -> object:
    """A capsule with the address of a PJRT_Api, as JAX expects it."""
    from hloom.system.python_api import python_function

    new = python_function("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return new(address, _NAME, None)


_NAME = b"pjrt_c_api"  # the capsule keeps its address
