"""Export of HLO modules to StableHLO: functions and blocks, the rules of single operations, locations."""
