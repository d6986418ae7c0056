"""The loop IR of kernels: scalar expressions over loop indices, loop nests around stores, and their schedules."""
