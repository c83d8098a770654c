"""kernel-triage: what a compiler did to a GPU kernel, told without a GPU."""

__version__ = "0.1.0"
