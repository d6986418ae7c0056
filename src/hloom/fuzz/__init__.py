"""Fuzzing: random modules, run in many ways whose results must agree."""
