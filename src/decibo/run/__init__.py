"""The one loop, and what it gives back."""
