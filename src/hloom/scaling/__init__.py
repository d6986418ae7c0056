"""Predicts the time, traffic and memory of a step on a cluster that is described by a file."""
