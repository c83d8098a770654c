"""Runs inside a foreign Triton environment: standard library, torch and triton only."""
