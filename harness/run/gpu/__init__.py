"""Cubins on a GPU, here or elsewhere: what is carried there, and what is made of the answers."""
