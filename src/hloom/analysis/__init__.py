"""Facts about a module: operation counts, trip counts, combiners that are monoids, traffic between devices."""
