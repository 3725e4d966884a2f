"""Bridges to other people's tools; each is imported by those who have the tool."""
