"""`python -m harness.run.child.serving SOCKET NAME`: executes launches, each in a limited fork.

The emulator takes a second to be loaded, and most launches take less to be executed.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

from harness.io.children.jobs import JobLimits
from harness.io.children.supervisor import Message, Supervisor, connect
from harness.run.emulator_jobs import EMULATE


def main() -> None:
    """Serve until the caller hangs up."""
    supervisor = Supervisor(connect(sys.argv[1], sys.argv[2]))

    def emulate(message: Message) -> None:
        folder = Path(message["folder"])
        # Here, so that no fork imports it again.
        module = importlib.import_module(message["module"])

        def body() -> None:
            os.chdir(folder)
            module.work(folder)

        streams = (str(folder / "stdout"), str(folder / "stderr"))
        supervisor.fork(message["id"], body, JobLimits(**message["limits"]), streams)

    supervisor.handle(EMULATE, emulate)
    supervisor.serve()


if __name__ == "__main__":
    main()
