"""SPMD partitioning: converts one logical program with shardings to the program of each partition, on its blocks.

    partitioned = partition(module, num_partitions, open_results=None, open_parameters=None)
    partitioned.module       the program of one partition: parameters and results are blocks; num_partitions is set
    partitioned.parameters   the Sharding of each array leaf of the entry's parameters, in order
    partitioned.results      the Sharding of each array leaf of the result, including those that were left open

`module` is what JAX sends, read from its HLO proto. Its shardings are annotations of GSPMD (`sharding`, custom calls
`Sharding`, `SPMDFullToShardShape`, `SPMDShardToFullShape`) or of Shardy (frontend attributes and custom calls
`xla.sdy.*`). The module is not changed. `open_results[k]` is true where result k may have any sharding (compile option
`allow_spmd_sharding_propagation_to_output`); a single flag holds for all results, and None uses the module's own
annotations. `open_parameters` does the same for parameters without annotation; None replicates them. A module without
annotations is replicated on every partition, so partitioning for a single partition only removes the annotations.
Arrays with dynamic dimensions are replicated whatever their annotations, and reported so.
`module.replica_count` must be set beforehand, because the groups of collectives name all devices. The ids in shardings
are partition ids: positions in the device assignment.

Read `shardings/` first (how a sharding is represented, and how data moves between two), then `planning/` (from
annotations to the shardings of all values), `choice.py` (which data moves), `block_values.py` and `partitioner.py`
(emitting the program).
"""
