"""Symbolic evaluation of modules: the evaluator with the rules of all operations."""

from hloom.prove.meanings import FAMILIES
from hloom.prove.meanings.evaluator import RULES, Evaluator, Symbol

__all__ = ["FAMILIES", "RULES", "Evaluator", "Symbol"]
