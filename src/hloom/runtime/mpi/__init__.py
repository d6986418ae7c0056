"""Runs programs on several MPI processes: the ranks share the devices, and collectives are MPI's.

Every rank runs the same Python program, started by `mpiexec -n N`.
"""
