"""Users' performance reports, measured: for each report a small program of our own (`python -m benchmarks.issues`)."""
