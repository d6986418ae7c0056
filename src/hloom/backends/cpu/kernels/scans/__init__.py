"""Scans along and across rows, cumulative windows, reductions of windows."""
