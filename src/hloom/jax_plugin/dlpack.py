"""DLPack: exchange of arrays between JAX on hloom and other libraries, without copies.

JAX maps a fixed list of platforms to DLPack's devices. hloom's memory is the host's, so its device is DLPack's CPU:
`install` makes JAX import arrays to hloom if that is the default platform, and export arrays from hloom.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from jax._src import array as jax_array
from jax._src import dlpack as jax_dlpack
from jax._src import xla_bridge

from hloom.jax_plugin.callbacks import PLATFORM
from hloom.system.python_api import immortal, python_function
from hloom.values import Array

CPU_DEVICE = (1, 0)
"""kDLCPU and device id 0."""
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_BFLOAT = 4
_NAME = b"dltensor"


class _Tensor(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


_exported: dict[int, tuple[Any, ...]] = immortal({})
"""Objects that exported tensors keep alive, by the address of the tensor.

Entries that exist when Python is finalised are leaked: a view of a JAX array may only be freed while JAX's client
lives.
"""


@functools.cache
def install() -> None:
    """Patches JAX so that DLPack works on hloom; further calls have no effect."""
    jax_dlpack._DL_DEVICE_TO_PLATFORM = _Platforms(jax_dlpack._DL_DEVICE_TO_PLATFORM)
    jax_dlpack._to_dlpack = _exporter(jax_dlpack._to_dlpack)
    array_type: Any = jax_array.ArrayImpl
    array_type.__dlpack_device__ = _device_of(array_type.__dlpack_device__)


class _Platforms(dict[Any, str]):
    """JAX's platforms by DLPack device. The CPU is hloom if hloom is the default platform."""

    def __getitem__(self, device: Any) -> str:
        if device == CPU_DEVICE[0] and xla_bridge.default_backend() == PLATFORM:
            return PLATFORM
        return super().__getitem__(device)


def _device_of(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(original)
    def dlpack_device(self: Any) -> Any:
        if len(self._arrays) == 1 and self.platform() == PLATFORM:
            return CPU_DEVICE
        return original(self)

    return dlpack_device


def _exporter(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def to_dlpack(x: Any, *, device: Any = None, copy: bool | None = None, **options: Any) -> Any:
        if x.platform() != PLATFORM or (device is not None and device.platform != PLATFORM):
            return original(x, device=device, copy=copy, **options)
        value = np.asarray(x)
        return capsule(value.copy() if copy else value)

    return to_dlpack


def capsule(array: Array) -> object:
    """A DLPack capsule of an array; the array lives until the consumer of the tensor deletes it."""
    if array.dtype == ml_dtypes.bfloat16:
        code = _BFLOAT
    elif array.dtype.kind in _CODES:
        code = _CODES[array.dtype.kind]
    else:
        raise BufferError(f"DLPack has no element type {array.dtype}")
    shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    strides = (ctypes.c_int64 * array.ndim)(*(stride // array.itemsize for stride in array.strides))
    tensor = _Tensor(
        data=array.ctypes.data,
        device_type=CPU_DEVICE[0],
        rank=array.ndim,
        code=code,
        bits=8 * array.itemsize,
        lanes=1,
        shape=ctypes.addressof(shape),
        strides=ctypes.addressof(strides),
        deleter=ctypes.cast(_DELETE, ctypes.c_void_p).value,
    )
    address = ctypes.addressof(tensor)
    _exported[address] = (array, tensor, shape, strides)
    return _new_capsule(address, _NAME, ctypes.cast(_DROP_CAPSULE, ctypes.c_void_p).value)


def _delete(address: int, exported: dict[int, tuple[Any, ...]] = _exported) -> None:
    exported.pop(address, None)


def _drop_capsule(capsule: int) -> None:
    """Destructor of capsules. One that was never consumed still has its original name."""
    if _is_capsule(capsule, _NAME):
        _delete(_capsule_content(capsule, _NAME))


_DELETE = immortal(ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_delete))
_DROP_CAPSULE = immortal(ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(_drop_capsule))


_new_capsule = python_function("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_is_capsule = python_function("PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
_capsule_content = python_function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
