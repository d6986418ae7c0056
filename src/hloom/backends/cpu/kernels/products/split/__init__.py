"""Products of f32 in tile registers, from bf16 parts of the factors."""
