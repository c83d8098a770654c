"""Frozen values, the error tree, and the limits of each GPU: standard library and packaging only."""
