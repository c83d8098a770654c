"""Commands as a user types them: what is spelled is what the command line reads."""

from __future__ import annotations

import os
import shlex
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from printed_commands import parse

from harness.cells.spelling import (
    SelectionOptions,
    on_assembler,
    on_compiler,
    only,
    spell_command,
    words_of,
)
from harness.cli.running import read_selection
from harness.io.processes.machine import PASS_ENV
from harness.values.kernel import Config, ConfigFilter
from harness.values.row import Row
from harness.values.verdict import VerdictKind

TEXT = st.text(st.characters(exclude_categories=["C"], exclude_characters="\0,="), min_size=1)
WORDS = TEXT.filter(lambda text: bool(text.strip()))
FEW = st.lists(WORDS, max_size=2).map(tuple)
NAMES = set(SelectionOptions.__struct_fields__) - {"surroundings", "formal"}


def selection_of(command: str) -> SelectionOptions:
    params = parse(command).params
    return read_selection(**{n: params[n] for n in NAMES if params[n] is not None})


@given(
    st.builds(
        SelectionOptions,
        kernel=WORDS,
        sm=FEW,
        triton=FEW,
        compiler=FEW,
        ptxas=FEW,
        assembler=FEW,
        set=FEW,
        launch=st.none() | WORDS,
        config=st.just("") | WORDS,
        freeze_ptx=st.booleans(),
    ),
    st.sets(st.from_regex(r"[A-Z_]+", fullmatch=True), max_size=2),
)
def test_what_is_spelled_is_read_as_it_was_meant(words: SelectionOptions, passed: set[str]) -> None:
    around = tuple(word for name in sorted(passed) for word in ("--pass-env", name))
    command = spell_command("compile", replace(words, surroundings=around))
    assert selection_of(command) == words
    assert shlex.split(command)[len(shlex.split(command)) - len(around) :] == list(around)


def test_what_launch_code_is_passed_is_spelled() -> None:
    with patch.dict(os.environ, {PASS_ENV: "B,A", "TRIAGE_CONFINE": "off"}):
        words = selection_of("triage compile --kernel k")
    assert words.surroundings == ("--pass-env", "A", "--pass-env", "B", "--confine", "off")


@pytest.mark.parametrize(
    ("kind", "version", "said"),
    [
        ("triton", "3.6.0", "--triton 3.6.0"),
        ("triton", ">=3.2", "--triton '>=3.2'"),
        ("toy", "1.0", "--compiler toy==1.0"),
        ("toy", ">=0", "--compiler 'toy>=0'"),
        ("toy", "latest", "--compiler toy==latest"),
        (None, None, ""),
    ],
)
def test_another_compiler_takes_the_place_of_all(
    kind: str | None, version: str | None, said: str
) -> None:
    words = SelectionOptions(kernel="k", triton=["1", "2"], compiler=["toy==9"])
    command = spell_command("compile", on_compiler(words, kind, version))
    assert command == f"triage compile --kernel k {said}".rstrip()


def test_without_a_named_assembler_nothing_is_frozen() -> None:
    words = SelectionOptions(kernel="k", ptxas=["13.0.88"], freeze_ptx=True)
    assert spell_command("compile", on_assembler(words, None, None)) == "triage compile --kernel k"
    other = spell_command("compile", on_assembler(words, "ptxas", "12.8.93"))
    assert other == "triage compile --kernel k --ptxas 12.8.93 --freeze-ptx"


CONFIGS = [
    Config(),
    Config.of({"num_warps": 4}),
    Config.of({"num_warps": 4, "maxnreg": 128}),
    Config.of({"num_warps": 8, "LAYOUT": "a,b|c"}),
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.label)
def test_a_config_alone_is_meant_whether_others_are_known_or_not(config: Config) -> None:
    names = {name for each in CONFIGS for name in each.as_dict()}
    for text in (only(config), only(config, names)):
        meant = ConfigFilter.parse(text)
        assert [each for each in CONFIGS if meant.matches(each)] == [config], text


def test_a_stored_row_is_selected_by_all_that_names_it() -> None:
    row = Row(
        cell="c",
        short="s",
        kernel="a b.py::k",
        launch="small:n=3,s=x y#2",
        config={"num_warps": 4},
        target="sm_90a",
        triton="3.6.0",
        compiler="triton",
        compiler_version="3.6.0",
        ptxas="13.0.88",
        ptxas_origin="nvidia-cuda-nvcc",
        verdict=VerdictKind.OK,
        reason="",
        frozen=True,
    )
    assert spell_command("blame", words_of(row)) == (
        "triage blame --kernel 'a b.py::k' --sm sm_90a --triton 3.6.0 --ptxas 13.0.88 --set n=3 "
        "--set 's=x y' --launch 'small#2' --config 'num_warps=4,*=none' --freeze-ptx"
    )
    bundled = spell_command("blame", words_of(replace(row, ptxas_origin="bundled")))
    assert "--ptxas" not in bundled
    assert "--freeze-ptx" not in bundled
    raw = spell_command("blame", words_of(replace(row, triton=None, compiler=None, config={})))
    assert "--config" not in raw
