"""CuTe DSL as a front end: kernels captured, lowered through MLIR to PTX."""
