"""Export of HLO modules to StableHLO: functions and blocks, the rules of single operations, locations.

Importing this package registers the rules of operations in `hloom.stablehlo.exporter.block.RULES`.
"""

from hloom.stablehlo.exporter import custom_calls, expansions, rules  # noqa: F401 # registers their rules
