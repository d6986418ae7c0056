"""Legalisation: passes that express operations, types and forms for which the CPU backend has no code by others.

Most of them replace all instructions of some operations; dynamic shapes and control edges exclude an instruction.
"""
