"""`python -m harness.frontends.triton.child SOCKET NAME`: serves compilations of one Triton."""

import gc
import sys

# What torch and Triton make while they are imported stays: looking for garbage in it takes 0.3 s.
gc.disable()

# Not every installer compiles torch to bytecode, and without it each import takes a second more.
# Triton's is never kept: its folder may be a toolchain, which is not ours to write to.
sys.dont_write_bytecode = "keep-bytecode" not in sys._xoptions  # noqa: SLF001 - the documented name
import torch  # noqa: E402, F401

sys.dont_write_bytecode = True

from harness.frontends.triton.child.serving import main  # noqa: E402

main()
