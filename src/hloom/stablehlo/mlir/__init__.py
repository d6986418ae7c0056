"""MLIR as data: operations, types and attributes, with readers and writers of text and bytecode."""
