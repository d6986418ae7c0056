"""Custom assembly formats of operations: templates, readers and writers."""
