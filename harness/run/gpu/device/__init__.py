"""What travels with a pack and runs beside the GPU: Python 3.10 and an NVIDIA driver, no more."""
