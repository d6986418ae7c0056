"""Fusion: deciding which instructions become one kernel, and preparing the operands of dots for it."""
