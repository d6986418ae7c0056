"""Expanders: passes that write an operation as simpler ones, one file a family.

Each replaces every instruction of its opcodes whose shapes are static; control edges keep an instruction as it is.
"""
