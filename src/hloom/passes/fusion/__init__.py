"""Which instructions become one kernel, and how many bytes and operations that saves."""
