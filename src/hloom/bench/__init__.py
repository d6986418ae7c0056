"""Workloads timed side by side with XLA's CPU backend: what the command `hloom bench` is made of.

`workloads` finds modules and makes their arguments, `measure` times one of them in this process, `isolated` does so in
a process of its own, `flops` and `machine` give the numbers to hold the times against, `report` and `chart` show them.
"""
