"""A program's own package, with state in its modules."""
