"""Products whose matrix is far larger than their operands, computed block by block with what uses them."""
