"""Rules of ops that are not one HLO operation: one file a family, and the table of all."""
