"""hloom as a device of PyTorch/XLA, which finds it by its entry point: `PJRT_DEVICE=HLOOM python train.py`."""

from __future__ import annotations

from torch_xla.experimental.plugins import DevicePlugin

from hloom.pjrt.plugin import library_path


class HloomPlugin(DevicePlugin):  # type: ignore[misc] # torch_xla has no types
    """The plugin of one process with one device."""

    def library_path(self) -> str:
        """Returns the path of the PJRT plugin. Raises ArgumentError if it cannot be compiled."""
        return str(library_path())

    def configure_single_process(self) -> None:
        """Does nothing: a process has one device."""
