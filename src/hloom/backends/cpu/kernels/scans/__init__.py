"""Scans along and across rows, cumulative windows, folds of windows."""
