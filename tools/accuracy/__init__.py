"""Measures the error of every function in units in the last place, on both of hloom's backends and on XLA's."""
