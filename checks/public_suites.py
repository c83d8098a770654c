"""Test suites of public packages under `pytest --triage`: how much of what they launch is captured.

    python checks/public_suites.py [--sm SM] [--timeout SECONDS] [WORD ...]

Fetches the sources by version and sha256, runs each file of tests (or those whose path has one of
the words) as it is, and prints the tables of docs/measured/public-tests.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from public_tests import PACKAGES, WHEELS

from harness.io.files.locations import cache_dir
from harness.io.packages.archives import fetch_sdist, fetch_wheel

BESIDE = {
    "liger-kernel": [
        "transformers==4.57.3",
        "huggingface-hub==0.36.0",
        "tokenizers==0.22.1",
        "safetensors==0.7.0",
        "regex==2025.11.3",
        "tqdm==4.67.1",
    ]
}
"""What tests import that is not installed with triage, by package."""
SUITES = [
    ("liger-kernel", "test/ops/test_*.py"),
    ("liger-kernel", "test/transformers/test_*.py"),
    ("conch-triton-kernels", "tests/*_test.py"),
]
"""Package, and its files of tests."""


def folder_of(package: str) -> Path:
    """The folder with what the tests of a package import besides; it is filled once."""
    folder = cache_dir() / f"beside-{package}"
    if names := BESIDE.get(package, []):
        if not folder.is_dir():
            command = [sys.executable, "-m", "uv", "pip", "install", "--no-deps", "--target"]
            subprocess.run([*command, str(folder), *names], check=True)
        return folder
    return fetch_wheel(*WHEELS[0])


def run(package: str, root: Path, file: Path, sm: str, timeout: str) -> dict[str, Any]:
    """What `--triage-json` has of a file; the last line of the output where it wrote none."""
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "out.json"
        limit = ["--triage-timeout", timeout]
        words = ["-p", "no:cacheprovider", "-p", "pytest_triage", "--triage", "--triage-sm", sm]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *words, *limit, "--triage-json", str(out), str(file)],
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(folder_of(package))},
            capture_output=True,
            text=True,
            check=False,
        )
        if out.is_file():
            found: dict[str, Any] = json.loads(out.read_text())
            return found
    lines = [*done.stdout.splitlines(), *done.stderr.splitlines(), "nothing"]
    return {"launches": 0, "captured": 0, "refusals": {lines[-2]: 1}, "tests": [], "cells": []}


def main() -> None:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sm", default="90a")
    parser.add_argument("--timeout", default="300")
    parser.add_argument("words", nargs="*")
    asked = parser.parse_args()
    print("| file | tests | to the end | launches | captured | configs |")
    print("|---|--:|--:|--:|--:|---|", flush=True)
    every = Counter[str]()
    why = Counter[str]()
    for package, pattern in SUITES:
        root = fetch_sdist(package, *PACKAGES[package])
        for file in sorted(root.glob(pattern)):
            name = f"{package} {file.relative_to(root)}"
            if asked.words and not any(word in name for word in asked.words):
                continue
            found = run(package, root, file, asked.sm, asked.timeout)
            ended = sum(test["outcome"] == "to the end" for test in found["tests"])
            verdicts = Counter(cell["verdict"] for cell in found["cells"])
            configs = ", ".join(f"{n} {word}" for word, n in verdicts.most_common())
            numbers = [len(found["tests"]), ended, found["launches"], found["captured"]]
            print(f"| {name} | {' | '.join(map(str, numbers))} | {configs} |", flush=True)
            every.update(
                dict(zip(("tests", "to the end", "launches", "captured"), numbers, strict=True))
            )
            why.update(found["refusals"])
    print(f"\n{dict(every)}\n\n| count | not captured |\n|--:|---|")
    for words, count in why.most_common():
        print(f"| {count} | {words} |")


if __name__ == "__main__":
    main()
