"""Compiled programs: their steps, and the assignment of memory to their buffers."""
