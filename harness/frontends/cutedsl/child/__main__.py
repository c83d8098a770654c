"""`python .../enter.py harness.frontends.cutedsl.child SOCKET NAME`: serves one CuTe DSL."""

from harness.frontends.cutedsl.child.serving import main

main()
