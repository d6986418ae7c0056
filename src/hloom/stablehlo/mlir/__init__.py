"""MLIR as data: operations, types and attributes, and the text and bytecode that they are read from and written to."""
