"""Silent wrong code of Triton, found by executing its PTX: writes docs/measured/wrong-code.md.

    python checks/wrong_code.py
    python checks/wrong_code.py late-use two-dots

runs `triage run` for each case below on every Triton and target, then `triage bisect`, `blame`,
`minimize` and `report --run` on the one that goes wrong, and writes what they said. Nothing of it
is typed in: a case names the kernel, the targets, the versions and where upstream describes the
bug. With names, only their sections are made again. `--reductions` is where what is reduced, and
the reports, are kept: a reduction that is there is not made again.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.report.gate import without_folders
from harness.values.toolchain import without_evidence

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "measured" / "wrong-code.md"
_ENTIRE = (
    "chunk_size=64",
    "seqlen=256",
    "headdim_qk=128",
    "headdim_v=64",
    "nheads=1",
    "nheads_qk=1",
)
_NEW = ("3.5.1", "3.6.0", "3.7.1", "3.8.0", "3.9.0")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A kernel on targets and Tritons; `columns` are what is varied: options of `triage run`.

    Where no `tritons` are named, the table is what `triage bisect` says of the first column.

    `failing` is a Triton with which the first column goes wrong: that is what is bisected, blamed
    and, for so many `seconds`, reduced, and reported. `formal`: it breaks only the letter of the
    memory model. `pattern` is the title of the section that has it in few lines: that is what is
    reduced and reported.
    """

    name: str
    title: str
    upstream: str
    kernel: str
    tritons: tuple[str, ...]
    columns: tuple[tuple[str, ...], ...]
    failing: str
    sets: tuple[str, ...] = ()
    note: str = ""
    seconds: int = 600
    formal: bool = False
    pattern: str = ""

    @property
    def failing_words(self) -> list[str]:
        """What goes wrong, as `bisect`, `blame` and `minimize` take it."""
        asked = "--formal" if self.formal else "--run"
        return [*self.words(self.columns[0], self.failing), asked]

    def words(self, column: Sequence[str], *tritons: str) -> list[str]:
        """The options that select it."""
        words = ["--kernel", self.kernel, *column]
        words += [word for each in tritons for word in ("--triton", each)]
        return words + [word for each in self.sets for word in ("--set", each)]


CASES = (
    Case(
        name="running-state",
        title="An output beside a running state, on tensor memory: in every Triton",
        upstream="triton-lang/triton#10993",
        kernel="scaled_values",
        tritons=(),
        columns=(("--sm", "100a"),),
        failing="3.9.0",
        note=(
            "The pattern of `mamba3_siso_fwd` (below) in 13 lines; whether the cause is the same "
            "is not known. The report for Triton is `reports/running-state`."
        ),
    ),
    Case(
        name="mamba3-accumulator",
        note=(
            "With two stages and four warps the accumulator is lost under every schedule, up "
            "to the newest Triton. With one stage, or two warps, only the late schedules are "
            "wrong, and only up to 3.7.1: that is the bulk store of the next section. The "
            "`race` of 3.8 and 3.9 is lanes of one warp that store a sum to one address of shared "
            "memory; a product is contracted into the sum on one side of an exchange only, so "
            "that the lanes' sums differ in the last bit, and which one stays is not determined "
            "(see *A reduction across warps*)."
        ),
        title="Mamba-3 forward with stages, on tensor memory",
        upstream="state-spaces/mamba#997; triton-lang/triton#10993",
        kernel="mamba3_siso_fwd",
        tritons=_NEW,
        sets=_ENTIRE,
        columns=(
            ("--sm", "100a", "--config", "num_warps=4,num_stages=2,maxnreg=none"),
            ("--sm", "100a", "--config", "num_warps=4,num_stages=1,maxnreg=none"),
            ("--sm", "100a", "--config", "num_warps=2,num_stages=2,maxnreg=none"),
        ),
        failing="3.9.0",
        pattern="An output beside a running state, on tensor memory: in every Triton",
    ),
    Case(
        name="mamba3-bulk-store",
        title="Mamba-3 forward: a bulk store, then a bulk load of the same memory",
        upstream="state-spaces/mamba#997",
        kernel="mamba3_siso_fwd",
        tritons=_NEW,
        columns=(
            ("--sm", "90a", "--config", "num_warps=4,num_stages=1,maxnreg=none"),
            ("--sm", "120a", "--config", "num_warps=4,num_stages=1,maxnreg=none"),
        ),
        failing="3.7.1",
        pattern="A tile that goes through memory: a bulk store, then a bulk load",
    ),
    Case(
        name="passed-on",
        title="A tile that goes through memory: a bulk store, then a bulk load",
        upstream="state-spaces/mamba#997",
        kernel="passed_on",
        tritons=("3.4.0", *_NEW),
        columns=(("--sm", "90a"), ("--sm", "120a"), ("--sm", "80")),
        failing="3.7.1",
        note="What `mamba3_siso_fwd` does in the section above, in two lines.",
    ),
    Case(
        name="two-dots",
        title="Two products into one accumulator, in a pipelined loop",
        upstream="triton-lang/triton#10821, #10858, #10988; linkedin/Liger-Kernel#1435",
        kernel="two_dots",
        tritons=_NEW,
        columns=(
            ("--sm", "100a", "--set", "stages=2"),
            ("--sm", "100a", "--set", "stages=3"),
            ("--sm", "100a", "--set", "stages=1"),
            ("--sm", "90a", "--set", "stages=2"),
            ("--sm", "80", "--set", "stages=2"),
        ),
        failing="3.8.0",
    ),
    Case(
        name="late-use",
        title="A pipelined load whose use comes after the next load",
        upstream="triton-lang/triton#8139",
        kernel="late_use",
        tritons=(),
        columns=(("--sm", "80"),),
        failing="3.5.0",
        note=(
            "Only a copy that is done at once (`early`) overtakes the read of what it writes over."
        ),
    ),
    Case(
        name="uneven-lanes",
        title="A reduction across warps: 32 lanes store what differs in the last bit",
        upstream="triton-lang/triton#11614, #7264",
        kernel="one_pass_variance",
        tritons=("3.6.0", "3.7.1", "3.8.0", "3.9.0"),
        columns=(("--sm", "90a"), ("--sm", "80"), ("--sm", "100a"), ("--sm", "120a")),
        failing="3.8.0",
        formal=True,
        note=(
            "Up to 3.7.1 one lane of a warp stores the warp's partial result; since 3.8.0 all 32 "
            "lanes store theirs to one address. An operation that is not symmetric in its last "
            "bit, as that of Welford, gives each lane another value, and nothing says which of "
            "them stays: the result may differ from run to run in its last bits, and not beyond. "
            "On the emulator the last lane wins, in the other order one that is farthest from it, "
            "and the values are right in both. A `tl.sum(x * y)` "
            "shows it too: the product is contracted into the first sum (#7264). What `minimize` "
            "leaves merges two results by keeping the first one, which is not commutative: it "
            "shows the 32 stores, but what to file is the kernel itself. In the corpus, "
            "`liger_layer_norm_fwd` (its sum of squares) and `liger_layer_norm_bwd` (its sums of "
            "products) are races of this kind, since 3.8.0: `fma` takes the product on one side "
            "of the first `shfl`, the partial sums of the lanes differ by one unit in the last "
            "place, and all lanes store theirs. `mamba3_angle_dt_bwd` has the same sums, and "
            "another store: where the sum of a row is brought into the layout of its store, the "
            "four lanes that hold it write it to one address, and differ by one or two units in "
            "the last place. No version guards that store: 3.3.0 (the oldest that runs it) to "
            "3.9.0."
        ),
    ),
    Case(
        name="delta-rule",
        title="A matrix in shared memory, read by the tensor core without a proxy fence",
        upstream="triton-lang/triton#9871, #10590",
        kernel="fla_gated_delta_rule_fwd_h_warps",
        note=(
            "Every value is right under every schedule, and the races are formal: with four "
            "warps, up to 3.7.0, no `fence.proxy.async` stands between the stores to shared "
            "memory and the `tcgen05.mma` that reads what they wrote; with two warps none is "
            "found. That breaks the letter of the memory model; whether it is the cause of what "
            "upstream saw is not known. What 3.9.0 shows is another thing: registers of "
            "`tcgen05.ld` are used before `tcgen05.wait::ld`, and assemblers wait for these "
            "themselves."
        ),
        tritons=("3.5.1", "3.6.0", "3.7.0", "3.7.1", "3.9.0"),
        columns=(("--sm", "100a", "--set", "warps=4"), ("--sm", "100a", "--set", "warps=2")),
        failing="3.6.0",
        formal=True,
    ),
)


def triage(*words: str) -> str:
    """What a command prints on stdout; it may find something wrong, or nothing."""
    command = [sys.executable, "-m", "harness", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode not in (0, 1, 4):
        sys.exit(f"{shlex.join(['triage', *words])}: {done.stderr[-500:]}")
    return done.stdout


def rows_of(case: Case) -> dict[tuple[str, tuple[str, ...]], dict[str, Any]]:
    """What comes out, by Triton and column; the targets of equal columns in one command."""
    found = {}
    for words in dict.fromkeys(column[2:] for column in case.columns):
        alike = {column[1]: column for column in case.columns if column[2:] == words}
        targets = [word for target in alike for word in ("--sm", target)]
        text = triage("run", *case.words([*targets, *words], *case.tritons), "--json")
        for row in json.loads(text)["runs"]:
            found[row["triton"], alike[row["target"].removeprefix("sm_")]] = row
    return found


def cell(row: dict[str, Any] | None) -> str:
    """What a row says, in a table."""
    if row is None:
        return "-"
    # `no fence.proxy.async orders ...`: what is missing, and how often.
    formal = Counter(race["what"].split()[1] for race in row["races"] if race["formal"])
    races = "".join(f"; formal: {count} x no `{what}`" for what, count in formal.items())
    if row["run"] != "wrong_result":
        return f"{row['run']}{races}"
    worst = max(row["outputs"], key=lambda each: each["differing"] or 0)
    share = f"{worst['differing']:,} of {worst['elements']:,} elements of `{worst['name']}`"
    far = f", by up to {worst['max_abs']:.3g}; schedule {row['schedule']}{races}"
    return f"**wrong**: {share}{far}"


def diagnosis(case: Case, reductions: Path) -> list[str]:
    """Since when, whose fault it is, the least source and the report; each by its command."""
    words = case.failing_words
    said = shlex.join(words)
    # The line to paste comes before the commands that show both sides again.
    answer = triage("bisect", *words, "--axis", "triton").partition("\nReproduce:")[0]
    since = " ".join(answer.rstrip().split("\n\n")[-1].split())
    found = json.loads(triage("blame", *words, "--json"))
    lines = [since, "", *(f"- {reason}" for reason in found["reasons"]), "", "```sh"]
    lines += [f"triage bisect {said} --axis triton", f"triage blame {said}"]
    if case.pattern:
        said = f"What is reduced and reported is the section *{case.pattern}*."
        return [*lines, "```", "", said, ""]
    lines += [f"triage minimize {said}", f"triage report {said} --for triton", "```", ""]
    out = reductions / case.name
    if not (out / "min.py").exists():
        triage("minimize", *words, "--max-time", f"{case.seconds}s", "--out", str(out))
    folder = reductions / f"report-{case.name}"
    options = ["--for", "triton", "--minimized", str(out), "--out", str(folder)]
    filed = triage("report", *words, *options).splitlines()
    lines += [f"`report`: {gate_of(filed)}", ""]
    # With a launch, where there is one: that is what needs only Triton and torch.
    file = next(path for name in ("kernel.py", "min.py") if (path := out / name).exists())
    least = file.read_text().partition('\n\nif __name__ == "__main__"')[0]
    summary = f"What `minimize` left of the kernel (`{file.name}`)"
    source = ["", "```python", least.rstrip(), "```", ""]
    return [*lines, f"<details><summary>{summary}</summary>", *source, "</details>", ""]


def gate_of(filed: Sequence[str]) -> str:
    """What the gate of a report says: that it is ready, or all that is wrong with it."""
    begin = next(n for n, line in enumerate(filed) if line.startswith(("Ready", "Not ready")))
    return " ".join(line.strip() for line in filed[begin:])


def history(case: Case) -> list[str]:
    """What every Triton makes of the first column, as `triage bisect` found it."""
    found = json.loads(triage("bisect", *case.failing_words, "--axis", "triton", "--json"))
    title = " ".join(word for word in case.columns[0] if not word.startswith("--"))
    lines = [f"| Triton | `{title}` |", "|---|---|"]
    for part in found["segments"]:
        first, last = part["first"], part["last"]
        name = first if first == last else f"{first} - {last}"
        reason = without_evidence(part["reasons"][0]).replace("|", "\\|")
        said = f"**{part['verdict']}**: {reason}"
        if part["outcome"] != "same":
            is_fine = part["verdict"] in ("right", "consistent", "ran")
            said = part["verdict"] if is_fine else f"{part['verdict']}: {reason}"
        lines.append(f"| {name} | {said} |")
    return lines


def table(case: Case) -> list[str]:
    """What comes out, Triton by Triton, and what it was compared with."""
    titles = [
        " ".join(word for word in column if not word.startswith("--")) for column in case.columns
    ]
    lines = [f"| Triton | {' | '.join(f'`{title}`' for title in titles)} |"]
    lines += [f"|---|{'---|' * len(titles)}"]
    rows = rows_of(case)
    for triton in case.tritons:
        words = " | ".join(cell(rows.get((triton, column))) for column in case.columns)
        lines.append(f"| {triton} | {words} |")
    # Each line is held to what its own Triton compiles.
    references = {
        re.sub(r" with Triton [\d.]+", "", row["reference"])
        for row in rows.values()
        if row["reference"]
    }
    return [*lines, "", f"Compared with: {'; '.join(sorted(references))}."]


def section(case: Case, reductions: Path) -> str:
    """The case as Markdown."""
    lines = [f"## {case.title}", "", f"Upstream: {case.upstream}.", ""]
    lines += [*(table(case) if case.tritons else history(case)), ""]
    lines += [case.note, ""] if case.note else []
    example = shlex.join(["triage", "run", *case.words(case.columns[0], case.failing)])
    return "\n".join([*lines, "```sh", example, "```", "", *diagnosis(case, reductions)])


def sections_of(page: str) -> dict[str, str]:
    """The sections of the page as it is, by title."""
    parts = re.split(r"^(?=## )", page, flags=re.MULTILINE)[1:]
    return {part.partition("\n")[0].removeprefix("## "): part.rstrip() for part in parts}


def main() -> None:
    """Write the page, or the named sections of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help=", ".join(case.name for case in CASES))
    parser.add_argument("--reductions", type=Path, help="reductions and reports, by case")
    asked = parser.parse_args()
    if unknown := set(asked.names) - {case.name for case in CASES}:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            if not asked.names or case.name in asked.names:
                made = section(case, asked.reductions or Path(folder)).rstrip()
                made = without_folders(made)
                known = sections_of(PAGE.read_text()) | {case.title: made}
                parts = [known[each.title] for each in CASES if each.title in known]
                PAGE.write_text("\n\n".join([HEAD.rstrip(), *parts]) + "\n")


HEAD = """# Silent wrong code, found without a GPU

These kernels compile without error, and what they compile to computes something else. Each cell of
a table is a `triage run`: the PTX of that Triton for that target, executed on the emulator
([run.md](../run.md)). What it says is *emulated PTX* (tables and statements of before 24 November
2026 say *emulated*): true of the PTX under the rules of the PTX ISA; no GPU took part. Below each
table stand the answers of `triage bisect`, `blame`, `minimize` and `report --run`, the last with
what its gate checked: the reports themselves are made by the command. `-` was not determined: this
machine could not run it.

`python checks/wrong_code.py` generates this page, `python checks/wrong_code.py two-dots`
one section of it.

The tolerance of `triage run` has become stricter since some tables were made. On 2026-11-24 the
first column of the running state, of both sections of Mamba-3 and of the proxy fence was executed
again: verdicts and largest differences are the same, but more elements count as different, 11,880,
11,738 and 1,903 where the tables have 10,235, 10,228 and 1,541.

The tables call `right`, too, what agrees with other configs alone (`consistent` since) and what the
interpreter of the same config confirms (`as_interpreted` since 28 November 2026). Since that day a
`race` of lanes that store copies of one sum changes no verdict without `--formal`. Of one
kernel that was run again, `scaled_values` with Triton 3.9.0, sm_80 is `right` (Triton's interpreter
confirms it), and sm_100a is `wrong_result` in 11,880 elements, as before.

Not here: triton-lang/triton#11153 (LLVM's JumpThreading, sm_86). Its reproducer is not available
here. What it is said to leave in the PTX, `triage run` names as the formal finding `parted`;
nothing in the corpus shows that this finds it.
"""

if __name__ == "__main__":
    main()
