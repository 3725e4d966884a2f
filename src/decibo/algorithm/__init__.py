"""Algorithms: directions times consensus strategies, and the named methods."""
