"""The reduction of Triton's IR."""
