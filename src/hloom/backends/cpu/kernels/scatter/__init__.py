"""Scatter, and select-and-scatter."""
