"""The pass rates of tests that others wrote: a page and badges, see tools/write_pass_rates.py."""
