"""StableHLO: modules of it in and out, as MLIR text and bytecode."""
