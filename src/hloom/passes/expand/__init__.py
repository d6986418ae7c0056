"""Expanders: passes that replace operations by simpler or cheaper ones, one file per family.

Most of them replace all instructions of some operations; dynamic shapes and control edges exclude an instruction.
"""
