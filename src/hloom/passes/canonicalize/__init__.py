"""Canonicalisation: passes that replace one form of a computation by another, so that later passes see one form."""
