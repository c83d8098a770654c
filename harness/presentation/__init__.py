"""Rows and reports as text."""
