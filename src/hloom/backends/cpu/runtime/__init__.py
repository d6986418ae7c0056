"""Run-time support of compiled programs: thread pool, memory, entry of a call, polls of the host, MPI."""
