"""Where a program's time goes: each kernel's time, and how near it comes to what the machine can do."""

from hloom.profile.measured import Kernel
from hloom.profile.profile import Profile, profile

__all__ = ["Kernel", "Profile", "profile"]
