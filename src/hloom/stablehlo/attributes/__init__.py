"""Conversions between attributes of StableHLO ops and fields of HLO operations, in both directions."""
