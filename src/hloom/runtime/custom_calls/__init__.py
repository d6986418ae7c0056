"""Custom calls: the registry of targets, their signatures, and the targets that hloom declares."""
