"""What is written beside a reduced text: nothing that it holds can break out of its place."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from typing import Any

import pytest
from made_minimization import minimization

from harness.frontends.triton.front_end import TRITON_FRONT_END
from harness.frontends.triton.source import TritonForm
from harness.judging.conditions import parse_condition
from harness.minimize.reduction.fingerprint import Answer, Fingerprint, Reaction
from harness.minimize.reduction.minimization import (
    Ablation,
    Ending,
    Minimization,
    VersionLine,
    versions_document,
)
from harness.minimize.reduction.reducer import Size
from harness.minimize.reduction.reduction_words import folder_files, pattern_words, spans_of
from harness.values.outcome import ProcessEnd
from harness.values.toolchain import NOTHING
from harness.values.verdict import Signature, Stage, VerdictKind

TRITON_FORM = TritonForm(TRITON_FRONT_END)

HOSTILE = "it's `bad` | $(touch x) *so* <b> \n## heading; ```rm -rf```"


def found(**changes: Any) -> Minimization:
    signature = Signature(
        stage="cubin", kind="ptxas_ice", failing_pass=None, code="C1", template="it's N bad"
    )
    reaction = Reaction(
        verdict=VerdictKind.PTXAS_ICE,
        reason="ptxas ended with exit code 255: (C1) it's 7 bad",
        is_accepted=False,
        end=ProcessEnd(exit_code=255),
        stage=Stage.CUBIN,
        code="C1",
        signature=signature,
    )
    values: dict[str, Any] = {
        "kernel": "k.ptx",
        "short": "01234567",
        "target": "sm_90a",
        "flags": ("-v", "--gpu-name=sm_90a"),
        "level": "ptx",
        "reason": reaction.reason,
        "install": TRITON_FORM.install("3.6.0", NOTHING),
        "ptxas": "2.0",
        "packages": {"2.0": "nvidia-cuda-nvcc", "1.0": "nvidia-cuda-nvcc-cu12"},
        "fingerprint": Fingerprint(bad="2.0", signature=signature.key, accepting=("1.0",)),
        "reaction": reaction,
        "limit": 10.0,
        "path": "minimized/k",
        "original_text": ".version 8.0\n",
        "text": ".version 8.0\n",
        "original": Size(instructions=10, bytes=100, lines=12),
        "minimized": Size(instructions=1, bytes=10, lines=3),
        "tests": 5,
        "calls": 7,
        "seconds": 1.0,
        "ending": Ending.FINISHED,
        "versions": (
            VersionLine(
                version="1.0",
                original=Answer.ACCEPTS,
                original_words="compiled",
                minimized=Answer.ACCEPTS,
                minimized_words="compiled",
            ),
            VersionLine(version="2.0", original=Answer.SAME, original_words="bad"),
        ),
    }
    return minimization(**{**values, **changes})


def tables(readme: str) -> list[list[str]]:
    """The rows of each table, by their unescaped bars."""
    rows = [line for line in readme.splitlines() if line.startswith("|")]
    return [re.split(r"(?<!\\)\|", row)[1:-1] for row in rows]


def test_a_readme_holds_hostile_text_in_its_place() -> None:
    line = VersionLine(
        version="2.0",
        original=Answer.SAME,
        original_words=HOSTILE,
        minimized=Answer.SAME,
        minimized_words=HOSTILE,
    )
    readme = folder_files(
        found(
            text=f".version 8.0\n// {HOSTILE}\n",
            reason=HOSTILE,
            versions=(line,),
            ablation=(Ablation(instruction=HOSTILE, is_needed=True, words=HOSTILE),),
            notes=(HOSTILE,),
        ),
        command=f"triage minimize {shlex.quote(HOSTILE)}",
    )["README.md"]
    fence = re.search(r"^(`{3,})ptx$", readme, re.MULTILINE)
    assert fence
    outside = re.sub(rf"{fence[1]}ptx\n.*?\n{fence[1]}\n", "", readme, flags=re.DOTALL)
    headings = [text for text in outside.splitlines() if text.startswith("#")]
    assert [text for text in headings if text.startswith("## heading")] == []
    widths = {len(row) for row in tables(outside)}
    assert widths == {2, 3, 4}
    assert len(fence[1]) == 4


def test_scripts_quote_what_they_are_given() -> None:
    files = folder_files(found(reason=HOSTILE), command="triage minimize k.ptx")
    assert "grep -qF -e '(C1)'" in files["test.sh"]
    # The part of the message before the number and the part behind it.
    assert """grep -qF -e 'it'"'"'s'""" in files["test.sh"]
    echoed = next(line for line in files["repro.sh"].splitlines() if "it shows: " in line)
    assert len(shlex.split(echoed)) == 2
    assert all("\n## heading" not in text for text in files.values())


def test_where_no_shell_can_tell_there_is_no_script() -> None:
    condition = parse_condition("occupancy<0.5")
    files = folder_files(
        found(fingerprint=Fingerprint(bad="2.0", condition=condition)), command="triage"
    )
    assert set(files) == {"README.md", "versions.json"}
    assert "repro.sh" not in files["README.md"]
    killed = Reaction(
        verdict=VerdictKind.OUT_OF_MEMORY,
        reason="ptxas was killed at 2.0 GiB",
        is_accepted=False,
        end=ProcessEnd(signal=9, over_memory=True),
    )
    files = folder_files(found(reaction=killed), command="triage")
    assert set(files) == {"README.md", "versions.json"}


def test_a_ptxas_that_no_index_has_must_be_named() -> None:
    files = folder_files(found(packages={}), command="triage")
    assert "cannot 'set PTXAS to the path of ptxas 2.0" in files["repro.sh"]
    assert "'ptxas 2.0, which is inside a Triton of that time'" in files["test.sh"]
    assert "pip install" not in files["repro.sh"]


@pytest.mark.parametrize(
    ("minimized", "said"),
    [
        (Answer.SAME, "The same as with original.ptx on all 2"),
        (Answer.OTHER, "NOT the same as with original.ptx: 2.0."),
        (None, "The versions were not run"),
    ],
)
def test_whether_versions_fare_alike_is_said(minimized: Answer | None, said: str) -> None:
    lines = (
        VersionLine(
            version="1.0", original=Answer.ACCEPTS, original_words="", minimized=Answer.ACCEPTS
        ),
        VersionLine(version="2.0", original=Answer.SAME, original_words="", minimized=minimized),
    )
    assert pattern_words(found(versions=lines)).startswith(said)


def test_the_python_of_the_source_level_is_compiled_by_the_installed_triton() -> None:
    files = folder_files(
        found(level="source", suffix=".py", triton="3.6.0", packages={}, ablation=(), versions=()),
        command="triage minimize --kernel k",
    )
    assert "triton==3.6.0" in files["repro.sh"]
    assert 'triage compile --kernel "$file" --sm sm_90a --triton 3.6.0 --json' in files["test.sh"]
    # The version that guards it has to go on accepting.
    guard = 'triage compile --kernel "$file" --sm sm_90a --triton 1.0 >/dev/null 2>&1 || exit 1'
    assert guard in files["test.sh"]
    assert "min.py" in files["README.md"]
    assert "min.ptx" not in files["README.md"]


def test_a_module_of_tritons_ir_has_its_command_too() -> None:
    files = folder_files(
        found(
            level="ttgir",
            suffix=".ttgir",
            options="--set num_stages=1 --set word=it's",
            triton="3.6.0",
            packages={},
            ablation=(),
            versions=(),
        ),
        command="triage minimize --kernel k",
    )
    [line] = [
        line
        for line in files["repro.sh"].splitlines()
        if '"$python" -c \'import sys, triton; f' in line
    ]
    [program] = shlex.split(line.partition(" -c ")[2].partition(' "$file"')[0])
    compile(program, "program", "exec")
    assert "GPUTarget('cuda', 90, 32)" in program
    assert "{'num_stages': 1, 'word': \"it's\"}" in program
    assert 'file=$(dirname "$0")/min.ttgir' in files["repro.sh"]


def test_the_table_of_versions_is_a_value_and_a_file() -> None:
    """Neighbours that fare alike are one span; a different reason of one of them is kept."""
    lines = [
        VersionLine(
            version=version,
            original=original,
            original_words=f"{original.value} {version}",
            minimized=minimized,
            minimized_words="says so",
        )
        for version, original, minimized in (
            ("3.4.0", Answer.ACCEPTS, Answer.ACCEPTS),
            ("3.5.0", Answer.SAME, Answer.SAME),
            ("3.5.1", Answer.SAME, Answer.SAME),
            ("3.6.0", Answer.OTHER, Answer.ACCEPTS),
        )
    ]
    made = found(level="source", suffix=".py", triton="3.5.1", versions=tuple(lines))
    assert [span.versions for span in spans_of(made)] == ["3.4.0", "3.5.0 - 3.5.1", "3.6.0"]
    assert spans_of(made)[1].original_words == "same 3.5.0; or same 3.5.1"
    assert (made.compiler, made.drift, made.is_same_everywhere) == ("Triton", ("3.6.0",), False)
    document = json.loads(folder_files(made, command="triage")["versions.json"])
    assert document == versions_document(made) | {"differs_on": ["3.6.0"]}
    assert (document["compiler"], document["original"]) == ("Triton", "original.py")
    assert [each["is_same"] for each in document["versions"]] == [True, True, True, False]
    # For ptxas, a version that fails in another way asks for nothing.
    ptx = found(versions=tuple(lines))
    assert (ptx.compiler, ptx.drift, ptx.is_same_everywhere) == ("ptxas", (), True)
    assert "On others it is another: 3.6.0." in pattern_words(ptx)
    assert "NOT the same as with original.py: 3.6.0." in pattern_words(made)
    unknown = found(versions=(replace(lines[0], minimized=None),))
    assert unknown.is_same_everywhere is None


def of_triton(kind: str, **changes: Any) -> Reaction:
    values: dict[str, Any] = {
        "verdict": VerdictKind(kind),
        "reason": "pass Accelerate failed: file.cpp: Assertion `a == 3' failed",
        "printed": "x/file.cpp:36: f(): Assertion `a == 3' failed.\nexecuting [`Accelerate`",
        "is_accepted": False,
        "end": ProcessEnd(exit_code=0),
        "stage": Stage.TTGIR,
        "signature": Signature(
            stage="ttgir",
            kind=kind,
            failing_pass="Accelerate",
            code=None,
            template="file.cpp: Assertion `a == 3' failed",
        ),
    }
    return Reaction(**{**values, **changes})


def repro_of(reaction: Reaction, **changes: Any) -> str | None:
    made = found(
        level="source", suffix=".py", triton="3.6.0", packages={}, reaction=reaction, **changes
    )
    return folder_files(made, command="triage").get("repro.sh")


def test_the_script_for_triton_asks_for_the_same_failure() -> None:
    """The status, the pass, and the words of the template that are printed as they are."""
    raised = repro_of(of_triton("pass_failure")) or ""
    assert '[ "$status" -eq 1 ] || return 1' in raised
    assert re.findall(r"grep -qF -e (.*) \"\$out/log\"", raised) == [
        "file.cpp",
        """'Assertion `a == 3'"'"' failed'""",
        "Accelerate",
    ]
    died = repro_of(of_triton("compiler_crash", end=ProcessEnd(signal=6))) or ""
    assert '[ "$status" -eq 134 ] || return 1' in died
    late = repro_of(of_triton("ptxas_ice", end=ProcessEnd(exit_code=255)), stage="cubin") or ""
    assert '[ "$status" -eq 1 ] || return 1' in late
    # A ptxas that dies says nothing; Triton says how it died.
    silent = of_triton("compiler_crash", printed="nothing", end=ProcessEnd(signal=11))
    dead = repro_of(silent, stage="cubin") or ""
    assert "grep -qF -e '`ptxas` failed with error code -11' \"$out/log\"" in dead
    # Python ends every exception with 1: without a word of it nothing is known.
    wordless = of_triton("rejected", printed="nothing of it")
    assert repro_of(wordless) is None


def test_a_stub_and_a_kernel_over_the_limit_compile() -> None:
    stub = repro_of(of_triton("trap_stub")) or ""
    assert "-name '*.ptx'" in stub
    over = of_triton(
        "out_of_resources", stage=Stage.LAUNCH, fields={"shared": 300_000, "tmem_size": 0}
    )
    assert '[ "$shared" -gt 232448 ]' in (repro_of(over) or "")
    unknown = of_triton("out_of_resources", stage=Stage.LAUNCH, fields={"shared": None})
    assert repro_of(unknown) is None


@pytest.mark.parametrize(
    ("level", "suffix"), [("source", ".py"), ("ttgir", ".ttgir"), ("config", ".sh")]
)
def test_a_folder_above_ptx_speaks_of_triton(level: str, suffix: str) -> None:
    reaction = of_triton("pass_failure")
    made = found(
        level=level,
        suffix=suffix,
        triton="3.6.0",
        stage="ttgir",
        reason=reaction.reason,
        reaction=reaction,
        packages={},
        text="triage compile" if level == "config" else "text",
    )
    readme = folder_files(made, command="triage minimize --kernel k")["README.md"]
    assert "Triton 2.0 fails with signature" in readme
    assert "| Triton |" in readme
    assert "ptxas" not in readme
    assert "instruction" not in readme
    assert "min.ptx" not in readme
