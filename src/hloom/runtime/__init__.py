"""Devices, executables, custom calls, and what replicas exchange while they run."""
