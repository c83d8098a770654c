"""The reduction of PTX."""
