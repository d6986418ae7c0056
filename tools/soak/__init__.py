"""A soak test: random programs for hours in one process; see `tools/run_soak.py`."""
