"""Runs a launch: memory is laid out, the grid runs batch by batch."""
