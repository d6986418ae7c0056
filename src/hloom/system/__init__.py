"""The process and the machine around hloom: queries, private files, CPython, signals, garbage, rounding modes."""
