"""Proofs of generated code: loop nests over expressions, and the instructions of one element."""
