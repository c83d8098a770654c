"""Kernels as they are named: repro files, launch files, cache folders of Triton."""
