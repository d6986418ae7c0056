"""Sorts: keys; quicksort, radix and merge sorts of rows and records; top-k."""
