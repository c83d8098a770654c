"""Compilers and assemblers as they are installed: what is available, and whether it is whole."""
