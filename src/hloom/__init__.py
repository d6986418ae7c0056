"""hloom: XLA, written to be read. See README.md for a tour and docs/design.md for how the house is built."""
