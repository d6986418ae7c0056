"""Runs tests of libraries that are built on JAX on hloom and on JAX's CPU backend: see tools/run_library_tests.py."""
