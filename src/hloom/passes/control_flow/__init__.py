"""Passes over calls, conditionals and loops."""
