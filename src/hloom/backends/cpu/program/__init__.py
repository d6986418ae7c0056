"""A module as one native program: its steps, and the memory of its buffers."""
