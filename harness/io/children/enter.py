"""Runs one of our modules with the Python of a foreign environment, and lends that nothing else.

`python .../enter.py MODULE WORD ...`: what lies beside our package (the packages that triage itself
is installed with, say) cannot be imported by it.
"""

from __future__ import annotations

import importlib.util
import runpy
import sys
from pathlib import Path


def main() -> None:
    """Run the module that is named first, with the words behind it."""
    package = Path(__file__).resolve().parents[2]
    del sys.path[0]  # the folder of this file
    spec = importlib.util.spec_from_file_location(
        package.name, package / "__init__.py", submodule_search_locations=[str(package)]
    )
    assert spec is not None, "it is the package that this file lies in"
    assert spec.loader is not None, "as above"
    ours = importlib.util.module_from_spec(spec)
    sys.modules[package.name] = ours
    spec.loader.exec_module(ours)
    name = sys.argv.pop(1)
    runpy.run_module(name, run_name="__main__")


if __name__ == "__main__":
    main()
