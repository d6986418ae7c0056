"""Rules of ops that are not one HLO operation: one file per family, and the table of all."""
