"""Real programs through JAX, on hloom and on XLA's CPU backend in turns: `python -m benchmarks`."""
