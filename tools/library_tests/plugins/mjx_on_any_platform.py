"""Lets MJX's tests, which leave the implementation to MJX, run on a platform that MJX does not know by name."""

from mujoco.mjx._src import io, types

io._resolve_impl = lambda device: types.Impl.JAX
