"""Where a program's time goes: each kernel's time, and how near it comes to what the machine can do."""

from hloom.profiler.measured import Kernel
from hloom.profiler.profile import Profile, profile

__all__ = ["Kernel", "Profile", "profile"]
