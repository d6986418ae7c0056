"""Programs on arrays of dynamic sizes -> programs on arrays of their bounds."""
