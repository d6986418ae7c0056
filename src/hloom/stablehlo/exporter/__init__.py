"""An HLO module as StableHLO: functions and blocks, the rules of single operations, locations."""
