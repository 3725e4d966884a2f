"""Adapters for other tools, one module for each; import the module of the tool you have."""
