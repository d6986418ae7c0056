"""SPMD partitioning: one logical program with shardings becomes the program that each partition runs on its blocks.

    partitioned = partition(module, num_partitions, open_results=None, open_parameters=None)
    partitioned.module       the program of one partition: parameters and results are blocks; num_partitions is set
    partitioned.parameters   the Sharding of each array leaf of the entry's parameters, in order
    partitioned.results      the Sharding of each array leaf of the result, those that were left open included

`module` is what JAX sends, read from its HLO proto: annotations of GSPMD (`sharding`, custom calls `Sharding`,
`SPMDFullToShardShape`, `SPMDShardToFullShape`) or of Shardy (frontend attributes and custom calls `xla.sdy.*`). It is
not changed. `open_results[k]` is true where result k may come in any sharding (compile option
`allow_spmd_sharding_propagation_to_output`; one flag may stand for all); None takes what the module itself says.
`open_parameters` are the same for parameters without annotation, of which None leaves each whole. A module without
annotations runs on every partition as a whole, so partitioning for one partition only takes the annotations out.
`module.replica_count` must be set before: the groups of collectives name all devices. Numbers in shardings are
partition numbers: places in the device assignment.

Read `mesh.py` first (how a sharding is written), then `rules.py` (how operations partition), `propagation.py` (which
sharding each value gets), `partial_sums.py` (values that are sums over partitions), `choice.py` and `resharding.py`
(what moves where), `custom.py` (custom calls), `partitioner.py` (writing the program).
"""

from hloom.passes.spmd.partitioner import Partitioned, partition

__all__ = ["Partitioned", "partition"]
