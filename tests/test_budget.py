"""How large the program is, held to a total that only goes down but for what a feature adds.

`python tests/test_budget.py` shows what a change adds, room by room, against the commit that git
names (`main` by default); `--lower` takes what was saved from the totals of `budget.txt`, and
`--feature '#28 what it is'` writes what there is beyond them as the price of that feature.
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


def sizes(files: dict[str, str]) -> dict[str, tuple[int, int]]:
    """Lines and tokens for each package, from the texts of its modules by path."""
    found = {}
    for package in PACKAGES:
        texts = [text for path, text in files.items() if path.startswith(f"{package}/")]
        found[package] = (sum(t.count("\n") for t in texts), sum(map(tokens_of, texts)))
    return found


def files_here() -> dict[str, str]:
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}


def read_budget() -> dict[str, tuple[int, int]]:
    """The total of each package, with its features."""
    budget = dict.fromkeys(PACKAGES, (0, 0))
    for line in BUDGET.read_text().splitlines():
        if line[0] != "#":
            package, lines, tokens, *_ = line.split()
            budget[package] = (budget[package][0] + int(lines), budget[package][1] + int(tokens))
    return budget


def test_the_program_does_not_grow() -> None:
    for package, (lines, tokens) in sizes(files_here()).items():
        most_lines, most_tokens = read_budget()[package]
        assert lines <= most_lines, f"{package} has {lines - most_lines} lines over its budget"
        assert tokens <= most_tokens, f"{package} has {tokens - most_tokens} tokens over its budget"
        # Else the room that one change makes is silently spent by the next.
        slack = "python tests/test_budget.py --lower"
        assert lines > 0.98 * most_lines, f"{package} has shrunk to {lines} lines: {slack}"


def main(words: list[str]) -> None:
    here = files_here()
    if words and words[0].startswith("--"):
        budget = read_budget()
        over = {
            package: [here - most for here, most in zip(size, budget[package], strict=True)]
            for package, size in sizes(here).items()
        }
        written = BUDGET.read_text().splitlines()
        for package, (lines, tokens) in over.items():
            if words[0] == "--feature" and (lines > 0 or tokens > 0):
                written.append(f"{package} {max(lines, 0)} {max(tokens, 0)} {words[1]}")
            first = next(at for at, line in enumerate(written) if line.startswith(f"{package} "))
            _, *total = written[first].split()
            kept = [
                int(most) + min(more, 0) for most, more in zip(total, over[package], strict=True)
            ]
            written[first] = " ".join(map(str, (package, *kept)))
        BUDGET.write_text("\n".join(written) + "\n")
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
