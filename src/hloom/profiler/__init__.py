"""Profiler: the time of each kernel of a program, and its share of the machine's limits."""

from hloom.profiler.measured import Kernel
from hloom.profiler.profile import Profile, profile

__all__ = ["Kernel", "Profile", "profile"]
