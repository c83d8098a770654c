"""Executes PTX on the CPU with numpy, as the PTX ISA says: no GPU, no ptxas."""
