"""Devices, executables, custom calls, and the communication between replicas while they run."""
