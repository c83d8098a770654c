"""Finished binaries: what is in them, what changed between two, their PTX assembled again."""
