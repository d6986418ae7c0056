"""StableHLO to an HLO module: functions and bodies, and the rules of ops that are not one HLO operation."""
