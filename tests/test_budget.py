"""How large the program is, held to one total of lines and one of tokens.

`python tests/test_budget.py` shows what a change adds, room by room, against the commit that git
names (`main` by default); `--lower` takes what was saved from the totals of `budget.txt`.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
BUDGET = ROOT / "tests" / "budget.txt"
PACKAGES = ("harness", "emulator/gpu_emulator")
# What the formatter decides, and what the program does not run.
UNCOUNTED = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def tokens_of(text: str) -> int:
    """Tokens without comments, layout and docstrings (strings that are a statement)."""
    count, before = 0, tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in UNCOUNTED:
            before = token.type if token.type != tokenize.COMMENT else before
            continue
        is_docstring = token.type == tokenize.STRING and before in UNCOUNTED
        count += not is_docstring
        before = token.type
    return count


def size_of(files: dict[str, str]) -> tuple[int, int]:
    """Lines and tokens of all modules, from their texts by path."""
    return sum(text.count("\n") for text in files.values()), sum(map(tokens_of, files.values()))


def files_here() -> dict[str, str]:
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}


def read_budget() -> tuple[int, int]:
    lines, tokens = map(int, BUDGET.read_text().split())
    return lines, tokens


def test_the_program_does_not_grow() -> None:
    size, most = size_of(files_here()), read_budget()
    over = [here - allowed for here, allowed in zip(size, most, strict=True)]
    assert max(over) <= 0, f"{over[0]} lines and {over[1]} tokens over the budget"
    # Else the room that one change makes is silently spent by the next.
    slack = "python tests/test_budget.py --lower"
    assert size[0] > 0.98 * most[0], f"the program has shrunk to {size[0]} lines: {slack}"


def main(words: list[str]) -> None:
    here = files_here()
    if words == ["--lower"]:
        lower = map(min, size_of(here), read_budget())
        BUDGET.write_text(" ".join(map(str, lower)) + "\n")
        return
    git = ["git", "-C", str(ROOT), "archive", words[0] if words else "main", *PACKAGES]
    packed = subprocess.run(git, capture_output=True, check=True).stdout
    then: dict[str, str] = {}
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        for member in tar:
            if member.name.endswith(".py") and (file := tar.extractfile(member)):
                then[member.name] = file.read().decode()
    change: Counter[str] = Counter()
    for files, sign in ((here, 1), (then, -1)):
        for path, text in files.items():
            change["/".join(path.split("/")[:2])] += sign * text.count("\n")
    for room, lines in sorted(change.items(), key=lambda item: -abs(item[1])):
        if lines:
            print(f"{lines:+7d} {room}")
    print(f"{sum(change.values()):+7d} lines in all")


if __name__ == "__main__":
    main(sys.argv[1:])
