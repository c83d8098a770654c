"""`python .../enter.py harness.frontends.cutile.child SOCKET NAME`: serves one cuTile."""

# Before cuTile is imported, which looks for a driver.
from harness.frontends.cutile.child import driver

driver.pretend()

from harness.frontends.cutile.child.serving import main  # noqa: E402

main()
