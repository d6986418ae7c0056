"""Emission of mathematical functions of real and complex elements, on vectors of any width."""
