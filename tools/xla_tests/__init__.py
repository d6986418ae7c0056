"""Runs the HLO modules of XLA's own tests on hloom and on XLA's CPU backend: see tools/run_xla_tests.py."""
