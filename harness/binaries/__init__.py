"""Finished binaries, and the toolchains that projects pin."""
