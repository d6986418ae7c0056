"""Products by blocks and tiles: the plan, and the functions and tasks that follow it."""
