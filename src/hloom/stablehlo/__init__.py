"""StableHLO: import and export of modules as MLIR text and bytecode."""
