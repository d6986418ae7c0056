"""Emission of element-wise operations: registers of each element type, arithmetic, mathematical functions."""
