"""Several processes as one machine: devices are shared among MPI's ranks, and collectives are MPI's.

Every rank runs the same program, made in the same way, under `mpiexec -n N`.
"""
