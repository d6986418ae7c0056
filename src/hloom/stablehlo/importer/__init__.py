"""Import of StableHLO as HLO modules: functions, bodies, and the rules of ops that are not one HLO operation."""
