"""Writes `harness/io/files/same_code.py`: the children's code makes the same as that of a commit.

`python benchmarks/same_code.py COMMIT`, or `make same-code BASE=COMMIT`: after a change of children
that changes no evidence, so that what users have stored is not compiled again.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
KINDS = ("triton", "tilelang", "cutedsl", "cutile", "nvrtc")
# Until 567428e each kind had a place of its own for its child.
HASH = """
import importlib, sys
from harness.io.files.own_code import code_sha256
kind = sys.argv[1]
try:
    if kind == "nvrtc":
        print(code_sha256("frontends/cuda/nvrtc_child.py"))
        sys.exit()
    from harness.frontends.registry import front_end
    print(front_end(kind).child_sha256())
except AttributeError:
    if kind == "triton":
        from harness.frontends.triton.sessions import child_code_sha256
        print(child_code_sha256())
    else:
        print(importlib.import_module(f"harness.frontends.{kind}.lowering").CHILD.identity()[0])
"""


def hashes(tree: Path) -> list[str]:
    """The hash of each kind's code for children in a tree of this repository."""
    env = {"PYTHONPATH": f"{tree}:{tree / 'emulator'}", "PATH": "/usr/bin:/bin", "HOME": str(tree)}
    return [
        subprocess.run(
            [sys.executable, "-c", HASH, kind],
            cwd=tree,
            env=env,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for kind in KINDS
    ]


def main() -> None:
    """Compare the commit that is named with the tree as it is."""
    table = ROOT / "harness" / "io" / "files" / "same_code.py"
    head, _, tail = re.split(r"(?s)(PAIRS: .*?\n\))", table.read_text())
    table.write_text(f"{head}PAIRS: tuple[tuple[str, str], ...] = (\n){tail}")
    with tempfile.TemporaryDirectory() as folder:
        older = Path(folder) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", older, sys.argv[1]], check=True)
        pairs = zip(hashes(ROOT), hashes(older), strict=True)
        subprocess.run([*git, "remove", "--force", older], check=True)
    rows = [
        f'    (\n        "{now}",\n        "{then}",\n    ),' for now, then in pairs if now != then
    ]
    lines = ["PAIRS: tuple[tuple[str, str], ...] = (", *rows, ")"]
    table.write_text(head + "\n".join(lines) + tail)


if __name__ == "__main__":
    main()
