"""The plan of a partitioning. In the order in which to read them: `rules.py` (how operations are partitioned),
`propagation.py` (which sharding each value gets), `partial_sums.py` (values that are sums over partitions), `custom.py`
(custom calls), `normalization.py` and `plan.py` (from annotations to the shardings of all values).
"""
