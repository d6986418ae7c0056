"""Native Python: functions in a small subset of Python as LLVM IR; `translator.py` tells what the subset is."""
