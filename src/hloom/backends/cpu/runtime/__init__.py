"""What runs beside compiled programs: the pool of threads, memory, buffers, and the entry of a call."""
