"""Elements as terms: their functions, values, laws and normal forms."""
