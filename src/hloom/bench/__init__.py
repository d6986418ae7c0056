"""Benchmarks against XLA's CPU backend: the implementation of the command `hloom bench`.

`workloads` finds modules and makes their arguments, `measure` times one of them in this process, `isolated` does so in
a child process, `machine` measures the limits of the machine, and `report` and `chart` show the results.
"""
