"""The assembler of Brew, `kettle.py VERSION [FLAGS] RECIPE CUP`: there is no PTX, and no ptxas."""

import os
import signal
import sys
from pathlib import Path

version, *_, recipe, cup = sys.argv[1:]
name, *steps = Path(recipe).read_text().splitlines()
unknown = [step for step in steps if not step.startswith("pour")]
if unknown:
    sys.exit(f"error: unknown step {unknown[0]!r}")
if version == "1.1" and len(steps) >= 4:
    print("it boils over", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGABRT)
Path(cup).write_text(f"{name}\ndone\n")
print(f"used {8 + len(steps)} spoons")
