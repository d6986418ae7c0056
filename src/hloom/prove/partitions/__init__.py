"""Proofs of SPMD partitioning: evaluation on all devices at once, blocks against the whole."""
