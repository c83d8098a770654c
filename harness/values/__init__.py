"""Frozen values, the error tree, the limits of each GPU: stdlib and packaging only."""
