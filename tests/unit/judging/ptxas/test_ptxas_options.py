"""Options of ptxas: which of them a version knows, and how they rank."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.judging.ptxas.ptxas_options import (
    OPTIONS,
    known_options,
    option_of,
    read_options,
    single_changes,
    usable,
)
from harness.values.errors import UsageError
from harness.values.kernel import Config
from harness.values.row import Row
from harness.values.verdict import VerdictKind
from harness.workaround.settings import (
    Setting,
    SettingKind,
    Tried,
    UserSetting,
    choose,
    is_first_aid,
    rank_key,
)

HELP = Path(__file__).parents[3] / "data" / "ptxas_help"
HOME = Setting(config=Config.of({"num_warps": 2}))


def usable_words(version: str) -> set[str]:
    known = known_options((HELP / f"{version}.txt").read_text())
    return {option.words for option in OPTIONS if usable(option, known)}


# --- what a version knows ---------------------------------------------------------------------


@pytest.mark.parametrize("version", ["12.0.76", "12.8.93", "12.9.86", "13.5.37"])
def test_every_line_of_a_help_that_names_an_option_is_read(version: str) -> None:
    text = (HELP / f"{version}.txt").read_text()
    assert set(known_options(text)) == {
        line.split()[0] for line in text.splitlines() if line.startswith("--")
    }


def test_what_a_version_does_not_know_is_not_tried() -> None:
    everything = {option.words for option in OPTIONS}
    fast = {words for words in everything if words.startswith("--Ofast-compile")}
    blocks = {words for words in everything if "minnctapersm" in words or "override" in words}
    assert len(fast) == 3
    assert usable_words("13.5.37") == usable_words("12.9.86") == everything
    assert usable_words("12.8.93") == everything - fast
    assert usable_words("12.0.76") == everything - fast - blocks


def test_a_value_has_to_be_one_that_the_version_takes() -> None:
    fast = next(option for option in OPTIONS if option.words == "--Ofast-compile min")
    level = next(option for option in OPTIONS if option.words == "--register-usage-level 10")
    override = next(option for option in OPTIONS if "override" in option.words)
    assert not usable(fast, {"--Ofast-compile": "0|max"})
    assert not usable(level, {"--register-usage-level": "0..5"})
    assert not usable(override, {"--maxrregcount": "N", "--override-directive-values": "N"})


def test_an_option_is_found_again_by_its_words() -> None:
    for option in OPTIONS:
        assert option_of(option.change) is option
    assert option_of(None) is None


# --- rank -------------------------------------------------------------------------------------


def row(spills: int, *, verdict: str = "sick", registers: int = 255, threads: int = 64) -> Row:
    return Row(
        cell=f"k/{spills}/{registers}/{threads}",
        short="01234567",
        kernel="k",
        launch="default",
        config={},
        target="sm_100a",
        triton="3.6.0",
        ptxas="12.9.86",
        ptxas_origin="bundled",
        verdict=VerdictKind(verdict),
        reason="",
        n_regs=registers,
        spill_stores=spills,
        spill_loads=spills,
        shared=1024,
        tmem_size=0,
        threads=threads,
        occupancy=0.125,
        instructions={"local": 10, "total": 100},
    )


def with_option(words: str) -> Setting:
    option = next(option for option in OPTIONS if option.words == words)
    return replace(HOME, flags=option.change)


ORIGIN = UserSetting(setting=HOME, defaults={"chunk": 64}, row=row(44_000, registers=32))
MORE_REGISTERS = replace(HOME, config=Config.of({"num_warps": 2, "maxnreg": 256}))
SMALLER = replace(HOME, launch=(("chunk", 16),), config=Config.of({"num_warps": 8}))
TRIED: list[Tried] = [
    (HOME, row(44_000, registers=32)),
    (with_option("--minnctapersm 1"), row(8_000)),
    (with_option("--minnctapersm 2"), row(8_000)),
    (with_option("--maxrregcount 255 --override-directive-values"), row(8_000)),
    (with_option("-O1"), row(6_000)),
    (with_option("--register-usage-level 10"), row(43_000, registers=32)),
    (MORE_REGISTERS, row(8_000)),
    (SMALLER, row(100, verdict="ok", threads=256)),
    (replace(HOME, ptxas="13.5.37"), row(40_000, registers=32)),
]


def changes(found: list[Tried]) -> list[str]:
    return [", ".join(step.words for step in ORIGIN.steps_to(setting)) for setting, _ in found]


def test_what_needs_no_change_of_source_and_lifts_the_spills_comes_first() -> None:
    found = changes(choose(ORIGIN, TRIED, TRIED[:1]))
    assert found[0] == "ptxas flags none -> --minnctapersm 1"
    # Optimising less comes behind it, whatever it spills: the figures do not tell its price.
    assert found[1] == "ptxas flags none -> -O1"
    assert "chunk 64 -> 16" in found[2]
    # A change of the source that does no better than one that needs none is farther.
    assert found[3:] == ["maxnreg none -> 256"]


def test_first_aid_is_kept_where_the_tuner_lists_a_config_that_spills_as_little() -> None:
    """What takes the same bytes away as `maxnreg=256` of the list, and needs no source."""
    found = changes(choose(ORIGIN, TRIED, [TRIED[0], (MORE_REGISTERS, row(8_000))]))
    assert found[:2] == ["ptxas flags none -> --minnctapersm 1", "ptxas flags none -> -O1"]
    assert "maxnreg none -> 256" in found


def test_first_aid_takes_half_of_the_trouble_away_without_a_change_of_source() -> None:
    verdicts = {
        words: is_first_aid(ORIGIN, setting, each)
        for (setting, each), words in zip(TRIED, changes(TRIED), strict=True)
    }
    assert [words for words, is_first in verdicts.items() if is_first] == [
        "ptxas flags none -> --minnctapersm 1",
        "ptxas flags none -> --minnctapersm 2",
        "ptxas flags none -> --maxrregcount 255 --override-directive-values",
        "ptxas flags none -> -O1",
    ]
    healthy = row(0, verdict="ok")
    assert is_first_aid(ORIGIN, replace(HOME, ptxas="13.5.37"), healthy)
    assert not is_first_aid(ORIGIN, replace(HOME, triton="3.9.0"), healthy)


def test_an_option_is_nearer_than_a_change_of_the_list() -> None:
    assert SettingKind.FLAGS.weight < SettingKind.CONFIG.weight
    one, other = with_option("--minnctapersm 1"), MORE_REGISTERS
    assert rank_key(ORIGIN, one, row(8_000)) < rank_key(ORIGIN, other, row(8_000))


@pytest.mark.parametrize("text", ["-O0", "--opt-level 1 --fmad=false", "--maxrregcount=64", ""])
def test_options_of_a_user_are_words_for_ptxas(text: str) -> None:
    assert " ".join(read_options(text)) == text


@pytest.mark.parametrize(
    "text",
    ["O0", "--gpu-name=sm_80", "-arch sm_80", "-O0 -o", "--output-file=x", "-O0 /etc/x", "-O0;ls"],
)
def test_what_a_cell_says_itself_is_no_option_of_a_user(text: str) -> None:
    with pytest.raises(UsageError, match="not an option for code"):
        read_options(text)


def test_a_flag_that_is_given_is_also_left_out() -> None:
    labels = [change.label for change in single_changes(("-v", "-lineinfo", "-lineinfo", "-O3"))]
    assert labels.count("without -lineinfo") == 1
    assert "without -O3" not in labels
