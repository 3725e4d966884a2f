"""Times of decibo against hand-written code, other libraries and the floor."""
