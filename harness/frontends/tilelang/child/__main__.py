"""`python .../enter.py harness.frontends.tilelang.child SOCKET NAME`: serves one TileLang."""

from harness.frontends.tilelang.child.serving import main

main()
