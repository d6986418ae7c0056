"""Files of modules (formats detected by content), of arrays (.npz), and snapshots of runs."""
