"""CUDA C++ as a front end: nvcc from the package index lowers a `.cu` file to PTX."""
