"""Modules and arrays in files: formats told apart by content, arrays as .npz and .npy, snapshots of a run."""
