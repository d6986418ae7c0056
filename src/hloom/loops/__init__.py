"""What a kernel computes: expressions of scalars over loop indices, nests of loops, and how they are scheduled."""
