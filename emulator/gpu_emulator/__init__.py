"""Executes GPU programs on the CPU with numpy: PTX as the PTX ISA says, no GPU, no ptxas."""

__version__ = "0.1.0"
