"""Installed ptxas that behave as a test writes down: real executables in a cache."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

from conftest import HERE, Triage

__all__ = ["FakeCache"]

CUBIN = HERE / "data" / "cubins" / "12.9.86" / "two_entries-sm_80.cubin"
TEMPLATE = """\
#!{python} -IS
import os, signal, sys, time

if "--version" in sys.argv:
    print("Cuda compilation tools, release 0.0, V{version}")
    print("Build fake_{version}")
    sys.exit(0)
text = open([word for word in sys.argv if word.endswith(".ptx")][0]).read()

def ice(code):
    print("ptxas fatal   : (" + code + ") Internal compiler error.", file=sys.stderr)
    sys.exit(255)

def die(number):
    os.kill(os.getpid(), number)
    time.sleep(9)

def hang():
    time.sleep(1000)

def ok(registers=4, stores=0):
    print("ptxas info    : Compiling entry function 'kernel' for 'sm_80'", file=sys.stderr)
    print("ptxas info    : Function properties for kernel", file=sys.stderr)
    print("    0 bytes stack frame, %d bytes spill stores, 0 bytes spill loads" % stores,
          file=sys.stderr)
    print("ptxas info    : Used %d registers" % registers, file=sys.stderr)
    output = sys.argv[sys.argv.index("-o") + 1]
    open(output, "wb").write(open({cubin!r}, "rb").read())
    sys.exit(0)

{body}
ok()
"""

# What takes everything looks at nothing, and needs no Python: it starts ten times as fast.
TAKES_ALL = """\
#!/bin/sh
case " $* " in *" --version "*)
  echo "Cuda compilation tools, release 0.0, V{version}"
  echo "Build fake_{version}"
  exit;;
esac
cat >&2 <<END
ptxas info    : Compiling entry function 'kernel' for 'sm_80'
ptxas info    : Function properties for kernel
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 4 registers
END
while [ "$1" != -o ]; do shift; done
cat "{cubin}" >"$2"
"""


class FakeCache:
    """A cache folder; `triage` works in `folder` with these toolchains and no network."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache = folder / "cache"

    @property
    def triage(self) -> Triage:
        """The command line, as a process."""
        env = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.folder),
            "TRIAGE_HOME": str(self.folder / "results"),
            "TRIAGE_CACHE_DIR": str(self.cache),
            "TRIAGE_OFFLINE": "1",
            "PYTHONPATH": str(HERE.parent),
        }
        return Triage(self.folder, env)

    def ptxas(self, version: str, body: str = "") -> Path:
        """Install one; `body` is Python that looks at `text`, and what it lets through is ok."""
        home = self.cache / "toolchains" / f"ptxas-{version}"
        path = home / "bin" / "ptxas"
        path.parent.mkdir(parents=True)
        template = TEMPLATE if body else TAKES_ALL
        path.write_text(
            template.format(python=sys.executable, version=version, cubin=str(CUBIN), body=body)
        )
        path.chmod(0o755)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        marker = {
            "kind": "ptxas",
            "version": version,
            "distribution": "nvidia-cuda-nvcc",
            "filename": f"nvidia_cuda_nvcc-{version}.whl",
            "sha256": digest,
            "executable": "bin/ptxas",
            "executable_sha256": digest,
            "banner": f"Cuda compilation tools, release 0.0, V{version}\nBuild fake_{version}",
            "installed": "2026-01-01T00:00:00+00:00",
        }
        (home / ".triage-toolchain.json").write_text(json.dumps(marker))
        return path
