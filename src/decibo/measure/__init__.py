"""Measures along a run, and what a step costs."""
