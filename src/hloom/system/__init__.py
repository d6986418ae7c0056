"""The process and the machine around hloom: queries, private files, CPython, records, signals, garbage, rounding."""
