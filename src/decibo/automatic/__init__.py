"""Step sizes that nobody has to choose."""
