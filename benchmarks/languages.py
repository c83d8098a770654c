"""What the example of each kernel language in README.md takes: from nothing, and from the store.

    python benchmarks/languages.py

The caches of triage and of uv are empty folders, so that all is downloaded; sources and results
are new too. The time from the store is that of the third run after it.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def examples() -> Iterator[tuple[str, list[str]]]:
    """Language and words of each line of the table."""
    _, _, table = README.read_text().partition("| language | example |")
    for line in table.partition("\n\n")[0].splitlines()[2:]:
        language, example = (cell.strip() for cell in line.split("|")[1:3])
        found = re.fullmatch(r"`triage (.*)`", example)
        assert found, f"README.md: no command in {example}"
        yield language, shlex.split(found[1])


def seconds(words: list[str]) -> float:
    """How long one command takes."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "harness", *words], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def mebibytes(folder: Path) -> int:
    """What lies in a folder, each file once however many names it has."""
    found = subprocess.run(["du", "-sm", folder], check=True, stdout=subprocess.PIPE)
    return int(found.stdout.split()[0])


def main() -> None:
    """Run each example in folders of its own, and print a table."""
    print("| language | from nothing | it installs | from the store |")
    print("|---|---|---|---|")
    for language, words in examples():
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            for name in ("UV_CACHE_DIR", "TRIAGE_CACHE_DIR", "TRIAGE_HOME"):
                os.environ[name] = str(folder / name)
            cold = seconds(words)
            size = mebibytes(folder / "TRIAGE_CACHE_DIR")
            warm = [seconds(words) for _ in range(3)][-1]
        print(f"| {language} | {cold:.1f} s | {size:,} MiB | {warm:.2f} s |")


if __name__ == "__main__":
    main()
