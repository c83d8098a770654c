"""Failures as bugs, with their lives over versions."""
