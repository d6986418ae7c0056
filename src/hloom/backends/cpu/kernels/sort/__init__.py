"""Sorts: keys, radix and merge sorts of rows and records; top-k."""
