"""`python -m harness.frontends.triton.child SOCKET NAME`: serves compilations of one Triton."""

import gc

# What torch and Triton make while they are imported stays: looking for garbage in it takes 0.3 s.
gc.disable()

from harness.frontends.triton.child.serve import main  # noqa: E402

main()
