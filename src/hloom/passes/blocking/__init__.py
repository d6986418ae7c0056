"""Loops over blocks of large products: the product and its users are computed block by block and never stored whole."""
