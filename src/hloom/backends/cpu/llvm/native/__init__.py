"""Native Python: functions in a small subset of Python, compiled to LLVM IR; see `translator.py` for the subset."""
