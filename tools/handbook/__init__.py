"""The operations handbook: a page for each operation, made from its declaration, its clauses and worked examples."""
