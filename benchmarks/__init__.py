"""Benchmarks of real programs through JAX, on hloom and on XLA's CPU backend alternately: `python -m benchmarks`."""
