"""kernel-triage: what a compiler did to a GPU kernel, determined without a GPU."""

__version__ = "0.1.0"
