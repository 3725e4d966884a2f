"""A run on disk: its folder, its history and what it was made of."""
