"""Processes: they are started here and nowhere else, under limits, each in a folder of its own."""
