"""Devices and executables, the communication between replicas while they run, and custom calls."""
