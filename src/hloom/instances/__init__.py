"""Random modules that match a pattern: the instances on which a rewrite rule is proved; attributes by kind."""
