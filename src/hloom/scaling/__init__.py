"""A step's time, traffic and memory on a cluster that is described: a model on paper."""
