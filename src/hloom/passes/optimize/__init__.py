"""Optimisation: passes that make programs faster or smaller by other operations, or by another order of them."""
