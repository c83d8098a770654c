"""What an issue claims: that a program works, or fails and how, and on what.

A claim is read off a sentence or a row of a table that has an outcome ("crashes", "works") and a
place (a version, a GPU, a level of ptxas, a call), and off what compilers printed in the issue.
Sentences that say what should be, or ask, claim nothing.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from harness.cells.log_errors import COMPILE_ERROR, RAISED, error_at
from harness.judging.messages import TRITON_OVERFLOW, worst
from harness.judging.ptxas.ptxas_log import parse_ptxas_log
from harness.values.target import SOLD_AS, Target, exact_target
from harness.values.toolchain import NVCC, PTX, PTXAS, TRITON
from harness.verify.programs import CodeBlock, Program, Prose


class Outcome(StrEnum):
    """What a claim says of the program."""

    WORKS = "works"
    FAILS = "fails"  # it does not say how
    COMPILE = "fails to compile"
    WRONG = "goes wrong when it is run"
    DIFFERS = "computes something else than at -O0"
    TIME = "takes too long"


class Versions(msgspec.Struct, frozen=True, kw_only=True):
    """Which versions of a tool: `first`, or all from it to `last`; None: whichever comes last.

    `since`: it was otherwise in the version before `first`. `before`: the last one before `first`.
    `dated`: the newest of the day on which it was written.
    """

    tool: str
    first: str | None = None
    last: str | None = None
    since: bool = False
    before: bool = False
    dated: bool = False


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """What a claim is about, as far as it says so: one part of each kind that it names."""

    versions: Versions | None = None
    target: Target | None = None
    level: int | None = None
    call: str | None = None


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """One claim: where it stands, in its own words, and which program it is about.

    `marks` are what a compiler must print. `variation`: it is about another program than the one
    that is printed. `is_row`: it is of a table.
    """

    line: int
    text: str
    outcome: Outcome
    place: Place
    program: int | None
    marks: Mapping[str, tuple[str, ...]] = {}
    variation: bool = False
    is_row: bool = False


class IssueReading(msgspec.Struct, frozen=True, kw_only=True):
    """What is read of an issue; `place` is where its program is tried if a claim does not say.

    `unread` are sentences that name a place, and no outcome that is understood.
    """

    blocks: tuple[CodeBlock, ...]
    programs: tuple[Program, ...]
    claims: tuple[Claim, ...]
    place: Place
    unread: tuple[str, ...]


# Words by what they say, one alternative a line; what is negated comes first.
_NOT = r"(?:does not|doesn't|did not|didn't|no longer|not|cannot|can't|won't|never)"
_WORDS: Sequence[tuple[Outcome, str]] = (
    (
        Outcome.WORKS,
        rf"""(?:{_NOT}|no|without(?: an?y?)?|nor) (?:crash\w*|fail\w*|errors?|reproduc\w+|happen\w*)
        (?:{_NOT}|no|without(?: an?y?)?|nor) (?:occur\w*|trigger\w*|affected|problems?|issues?)""",
    ),
    (
        Outcome.COMPILE,
        rf"""crash(?:es|ed|ing)?|seg-?faults?|segmentation fault|abort(?:s|ed)?|PassManager\S*
        (?-i:ICEs?|C\d{{4}}|SIG[A-Z]{{3,4}})|internal (?:compiler )?error|reject(?:s|ed)|refuse[sd]
        assert(?:s|ion)?(?: (?:error|fail(?:s|ed|ure)?))?|compil(?:er|ation|e) (?:errors?|fail\w*)
        fail(?:s|ed|ing)? (?:to compile|compil\w+)|{_NOT} compiles?|out of resources?
        pass_failure|compiler_crash|ptxas_ice|ptxas_error""",
    ),
    (
        Outcome.WRONG,
        r"""wrong(?: (?:results?|code|values?|outputs?))?|incorrect\w*|miscompil\w+|mismatch\w*
        NaNs?|garbage|inaccurate|illegal memory access|misaligned address|deadlocks?|hangs?
        race condition|silently \w+|wrong_result|memory_fault|nondeterministic""",
    ),
    (
        Outcome.FAILS,
        rf"""{_NOT} (?:works?|run|pass)|fail(?:s|ed|ing|ures?)?|\w*errors?(?: out)?|throw(?:s|ing)?
        rais(?:es|ed)|broken|breaks?|broke|regress(?:ion|ed|es)?|bad|first seen|[❌✗✘]
        reproduce[sd]?|reproducible|(?:is|are|still) affected|still (?:present|happens|occurs)""",
    ),
    (
        Outcome.WORKS,
        r"""unaffected|works?|worked|working|compiles|compiled|to compile|passed|tests? pass(?:es)?
        runs? (?:fine|ok)|fine|ok(?:ay)?|correct(?:ly)?|succe(?:eds|eded|ss)|fixed|resolved|good
        agrees with|[✅✓✔]""",
    ),
    (
        Outcome.TIME,
        r"""slow(?:er|down)?|fast(?:er)?|speed\w*|performance|perf|TFLOPS?|GB/s|latency|throughput
        \d(?:\.\d+)?x|\d ?(?:ms|us|µs)""",
    ),
    (Outcome.DIFFERS, "stores?|prints?|returns?|gives|outputs|computes|produces|yields"),
)
_OUTCOMES = re.compile(
    r"(?<![\w`.-])(?:"
    + "|".join(
        f"(?P<w{n}>{'|'.join(map(str.strip, words.splitlines()))})"
        for n, (_, words) in enumerate(_WORDS)
    )
    + r")(?![\w-])",
    re.IGNORECASE,
)
_FAILURES = frozenset({Outcome.FAILS, Outcome.COMPILE, Outcome.WRONG, Outcome.TIME})
_NO_CLAIM = re.compile(
    r"\b(?:should|would|could|may|might|must|expect\w*|suppos\w+|hop(?:e|ing)|perhaps|maybe|probably"
    r"|likely|think|guess\w*|assum\w+|want\w*|wonder\w*|can you|could you|please|whether|not sure"
    r"|unclear|used to|untest\w+|not tried|unknown|unsupported|could not be|cannot be checked"
    r"|any of|cannot do it)\b"
    r"|^\W*(?:no|none|not one|neither)\b(?! (?:crash|fail|error|problem|issue))",
    re.IGNORECASE,
)
_VARIATION = re.compile(
    r"\b(?:if|when|unless|instead|remov\w+|replac\w+|chang\w+|setting|disabl\w+|increas\w+|reduc\w+"
    r"|delet\w+|forc(?:e|ing)|uncomment\w*|adding|swapp\w+|workaround)\b",
    re.IGNORECASE,
)
_VALUE = re.compile(r"(?<![\w-])(\w+) ?(==?|->|[<>]=?|in (?=[{\[])) ?([\w.{\[]+)")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[\"'(`*_]*[A-Z`])|;\s+|\n\s*\n")
_CLAUSE = re.compile(
    r",?\s+\b(?:but|while|whereas|however|although|though|yet|and then)\b[,\s]*"
    r"|,\s+(?:and\s+)?(?=(?:it\s+|is\s+)?(?:works?|fails?|crashes|compiles|passes|fixed|broken)\b)",
    re.IGNORECASE,
)
# Numbers of what is no compiler of the program.
_OTHER_NUMBERS = re.compile(
    r"\b(?:pytorch|torch|torchvision|python|driver|llvm|clang|gcc|glibc|ubuntu|debian|linux|windows"
    r"|numpy|cudnn|vllm|sglang|kernel-triage|PTX(?: ISA)?(?: version)?|\.version|ISA|release)"
    r"\b[^\w\n]{0,4}(?:version\b[^\w\n]{0,3})?v?\d[\w.+-]*"
    r"|\b\d+\.\d+(?:\.\d+)*\+(?:cu|cpu)\w*",
    re.IGNORECASE,
)
_TOOLS = {
    "triton": TRITON,
    "tilelang": "tilelang",
    "ptxas": PTXAS,
    "cuda": PTXAS,
    "cuda toolkit": PTXAS,
    "nvcc": NVCC,
    "cutedsl": "cutedsl",
    "nvidia-cutlass-dsl": "cutedsl",
    "cutile": "cutile",
}
_VERSION = re.compile(
    rf"(?<![\w.])(?:\b(?P<tool>{'|'.join(sorted(_TOOLS, reverse=True))})\b"
    r"(?:[\s:=@,_`*-]|version|release)*)?[vV]?(?P<number>\d{1,4}\.\d{1,4}(?:\.\d{1,4})?"
    r"(?:\.?post\d{1,3})?)(?![\w]|\.\d)",
    re.IGNORECASE,
)
# A version of something else than the compiler: the claim is about more than the program.
_FOREIGN = re.compile(r"(?<![\w.])\d+\.\d+\.\d+(?!\w|\.\d)")
# CUDA 13.2 Update 1 is 13.2.1.
_UPDATE = re.compile(r"(\d{2}\.\d) Update (\d)", re.IGNORECASE)
_NEWEST = re.compile(
    r"\b(?:on|in|with|at|using|from|to|against) (?:the |current |latest |newest )*"
    r"(?:main|master|nightl(?:y|ies)|top of (?:the )?tree|ToT|HEAD|trunk|latest|newest)\b"
)
_RANGE = re.compile(
    r"\s*[`*]*\s*(?:-|\u2013|\u2014|\.\.\.?|to|through|until)\s*[`*]*\s*", re.IGNORECASE
)
_SINCE = re.compile(
    r"\b(?:since|starting (?:with|from|in)|as of|introduced (?:in|by)|regress\w+ (?:in|after))"
    r"[\w\s.:`*(]{0,40}$",
    re.IGNORECASE,
)
_BEFORE = re.compile(r"\b(?:before|older than|prior to|below|<)\s*$", re.IGNORECASE)
_SM = re.compile(r"\bsm_?(\d{2,3})([af]?)\b|\bcompute capability (\d{1,2})\.(\d)", re.IGNORECASE)
_SOLD = re.compile("|".join(rf"\b(?P<sm{sm}>{names})\b" for sm, names in SOLD_AS.items()))
_LEVEL = re.compile(r"(?<![\w-])(?:-O ?|--opt-level[ =])([0-3])(?!\w)")
# What documents and people say is no claim of this issue.
_QUOTED = re.compile(r'(?<![\w`])"[^"]{20,}(?:"|$)')
_CODE_SPAN = re.compile(r"`([^`\n]{1,200})`")
_ICE = re.compile(r"\b(C\d{4})\b")
_PASS = re.compile(r"executing \[`(\w+)`")
_QUOTED_ASSERTION = re.compile(r"Assertion [`'](.{1,400}?)['`]? failed")
_SIGNALS = {
    "SIGSEGV": re.compile(r"SIGSEGV|Segmentation fault|\bsegfault|signal 11\b", re.IGNORECASE),
    "SIGABRT": re.compile(r"SIGABRT|\bAborted\b"),
}
_LONGEST_SAID = 60
_Said: TypeAlias = tuple[str, Outcome, Sequence[Place], bool]
"""Words, what they say, of which places, and whether of another program."""


def marks_of(text: str) -> dict[str, tuple[str, ...]]:
    """By what one knows a failure again in what compilers print, the telling ones first."""
    lines = text.splitlines()
    said = worst(parse_ptxas_log(text).messages)
    raised = [
        error_at(at, lines[at : at + 44]).message
        for at, line in enumerate(lines)
        if COMPILE_ERROR.search(line) or RAISED.match(line.lstrip())
    ]
    found = {
        "code": _ICE.findall(text),
        "assertion": _QUOTED_ASSERTION.findall(text),
        "resource": ["/".join(match) for match in TRITON_OVERFLOW.findall(text)],
        "pass": _PASS.findall(text),
        "ptxas": [said.text] if said else [],
        "raised": [each for each in raised if len(each.partition(": ")[2]) > 3],
        "signal": [name for name, words in _SIGNALS.items() if words.search(text)],
    }
    return {kind: tuple(dict.fromkeys(each)) for kind, each in found.items() if each}


def are_alike(one: str, other: str) -> bool:
    """Whether two messages are one, whatever numbers and names of types they hold."""
    plain = [re.sub(r"[\d\W_]+", "", text.rpartition("Error: ")[2]) for text in (one, other)]
    shorter, longer = sorted((text[:_LONGEST_SAID] for text in plain), key=len)
    return bool(shorter) and longer.startswith(shorter)


def read_claims(
    blocks: Sequence[CodeBlock],
    programs: Sequence[Program],
    prose: Sequence[Prose],
    releases: Mapping[str, Sequence[str]],
) -> IssueReading:
    """What the parts of an issue claim.

    `releases` are the versions of each tool that there are: a bare number is one of them or none.
    """
    reader = _Reader(programs, releases)
    claims = [
        claim for nth, part in enumerate(prose) for claim in reader.read(part, is_title=nth == 0)
    ]
    for log in (block for block in blocks if block.what == "a log"):
        if marks := marks_of(log.text):
            kind, said = next(iter(marks.items()))
            is_known = kind != "raised" or COMPILE_ERROR.search(log.text)
            claims.append(
                Claim(
                    line=log.line,
                    text=f"it prints: {said[0]}",
                    outcome=Outcome.COMPILE if is_known else Outcome.FAILS,
                    place=Place(),
                    program=reader.program_at(log.line),
                    marks=marks,
                )
            )
    plain = [claim for claim in claims if claim.place == Place() and not claim.marks]
    # What is said with a place, or printed, says more than that something is wrong.
    claims = [claim for claim in claims if claim not in plain or claim.is_row] or plain[:1]
    claims = [*plain[:1], *claims] if plain and plain[0].line <= 1 else claims
    kinds = {claim.outcome for claim in claims} & {Outcome.COMPILE, Outcome.WRONG, Outcome.DIFFERS}
    if len(kinds) == 1:
        # How it fails is said once.
        [kind] = kinds
        kind = Outcome.WRONG if kind is Outcome.DIFFERS else kind
        claims = [
            replace(claim, outcome=kind) if claim.outcome is Outcome.FAILS else claim
            for claim in claims
        ]
    distinct = dict[object, Claim]()
    for claim in claims:
        more = claim.variation and claim.text
        key = claim.outcome, claim.place, claim.program, str(claim.marks), more
        distinct.setdefault(key, claim)
    commands = [block.text for block in blocks if block.what == "commands"]
    texts = [(block.text, "") for block in blocks if block.what in ("other text", "commands")]
    texts += [(part.text, part.heading) for part in prose]
    texts += [(block.text, "") for block in blocks if block.what == "a log"]
    return IssueReading(
        blocks=tuple(blocks),
        programs=tuple(programs),
        claims=tuple(sorted(distinct.values(), key=lambda claim: claim.line)),
        place=reader.default(claims, texts, commands),
        unread=tuple(dict.fromkeys(reader.unread)),
    )


class _Reader:
    """Reads prose, part by part."""

    def __init__(self, programs: Sequence[Program], releases: Mapping[str, Sequence[str]]) -> None:
        self.unread: list[str] = []
        self._programs = programs
        self._releases = releases
        compiler = programs[0].compiler if programs else TRITON
        # What a bare number is a version of.
        self._tool = PTXAS if compiler == PTX else compiler
        self._introduced: Outcome | None = None

    def program_at(self, line: int) -> int | None:
        """The program that a line is about: the last one above it, else the first."""
        above = [n for n, program in enumerate(self._programs) if program.line <= line]
        return above[-1] if above else 0 if self._programs else None

    def default(
        self, claims: Sequence[Claim], texts: Sequence[tuple[str, str]], commands: Sequence[str]
    ) -> Place:
        """Where the program is tried that a claim says nothing more of."""
        levels = {int(match[1]) for text in commands for match in _LEVEL.finditer(text)}
        found = [
            (place, bool(re.search("version|environment|system", heading, re.IGNORECASE)))
            for text, heading in texts
            for _, place in self._places(text, heading)
        ]
        titled = [c.place for c in claims if c.line <= 1]
        claimed = [c.place for c in claims if c.outcome is not Outcome.WORKS]
        environment = [place for place, is_environment in found if is_environment]
        rest = [place for place, _ in found]
        works = (c.place for c in claims if c.outcome is Outcome.WORKS)
        good = {place.versions for place in works if place == Place(versions=place.versions)}
        versions = [
            place.versions
            for place in [*titled, *environment, *claimed, *rest]
            if place.versions and not place.versions.dated and place.versions.tool == self._tool
        ]
        versions = [v for v in versions if v not in good and not v.before] or versions
        targets = [program.target for program in self._programs[:1]]
        targets += [place.target for place in [*titled, *environment, *claimed, *rest]]
        first = versions[0] if versions else None
        return Place(
            call=next((place.call for place in claimed if place.call), None),
            level=levels.pop() if len(levels) == 1 else None,
            versions=first and Versions(tool=self._tool, first=first.last or first.first),
            target=next(filter(None, targets), None),
        )

    def read(self, part: Prose, *, is_title: bool) -> list[Claim]:
        """The claims of one part."""
        text = _UPDATE.sub(r"\1.\2", " ".join(part.text.split()))
        clauses = [
            clause
            for sentence in _SENTENCE.split(text)
            if not sentence.rstrip().endswith("?")
            for clause in filter(None, _CLAUSE.split(sentence))
            if not _NO_CLAIM.search(clause)
        ]
        found = [each for clause in clauses for each in self._clause(part, clause, is_title)]
        if part.kind != "list_item":
            ends = list(_OUTCOMES.finditer(text))
            is_said = part.introduces and ends and not _NO_CLAIM.search(text)
            self._introduced = _outcome(ends[-1]) if is_said else None
        return [
            Claim(
                line=part.line,
                text=words,
                outcome=outcome,
                place=place,
                program=self.program_at(part.line),
                marks={} if outcome is Outcome.WORKS else marks_of(words),
                variation=varies,
                is_row=part.kind == "row",
            )
            for words, outcome, places, varies in (self._row(part) if part.cells else found)
            for place in _crossed(places)
            if outcome is not Outcome.DIFFERS or place.level
        ]

    def _clause(self, part: Prose, clause: str, is_title: bool) -> Iterator[_Said]:  # noqa: FBT001
        """What a part of a sentence says: its outcomes, each with the places that it has."""
        places = self._places(clause, part.heading)
        others = [match.span() for match in _OTHER_NUMBERS.finditer(clause)]
        others += [match.span() for match in _QUOTED.finditer(clause)]
        bare = _blanked(clause, [*others, *(at for at, _ in places)])
        outcomes = [(match.span(), _outcome(match)) for match in _OUTCOMES.finditer(bare)]
        if not outcomes and places and self._introduced and part.kind == "list_item":
            outcomes = [((0, 0), self._introduced)]
        if not outcomes:
            is_said = places and part.kind != "heading" and len(clause.split()) > 3
            self.unread += [clause] if is_said else []
            return
        is_changed = not places and _VARIATION.search(bare)
        varies = bool(is_changed or _FOREIGN.search(bare) or self._varies(bare, part.line))
        own: list[list[Place]] = [[] for _ in outcomes]
        is_before = bool(places) and places[0][0] < outcomes[0][0]
        for span, place in places:
            nearest = _nearest(clause, span, [at for at, _ in outcomes], is_before=is_before)
            own[nearest].append(place)
        may_be_bare = is_title or not (places or part.kind == "heading")
        for (_, outcome), its in zip(outcomes, own, strict=True):
            if its or (outcome in _FAILURES and may_be_bare):
                yield clause, outcome, its, varies

    def _row(self, part: Prose) -> Iterator[_Said]:
        """What a row of a table says: each cell with an outcome, at the places of the others."""
        outcomes = [next(_OUTCOMES.finditer(cell), None) for cell in part.cells]
        titles = [*part.header, *[""] * len(part.cells)]
        cells = list(zip(part.cells, titles, outcomes, strict=False))
        others = [(cell, title) for cell, title, outcome in cells if outcome is None]
        about = [place for each in others for _, place in self._places(*each)]
        rest = " ".join(cell for cell, _ in others)
        for cell, title, outcome in cells:
            if outcome is None or _NO_CLAIM.search(cell):
                continue
            own = about + [place for _, place in self._places(title, "")]
            own = own or [place for _, place in self._places(cell, title)]
            varies = self._varies(rest, part.line) or bool(rest and not own)
            yield part.text, _outcome(outcome), own, varies

    def _varies(self, text: str, line: int) -> bool:
        """Whether a text names a value that the program does not have as it is printed."""
        number = self.program_at(line)
        code = "" if number is None else self._programs[number].text.replace(" ", "")
        return any(
            sign not in ("=", "==") or f"{name}={value}" not in code
            for name, sign, value in _VALUE.findall(text)
        )

    def _places(self, text: str, heading: str) -> list[tuple[tuple[int, int], Place]]:
        """The parts of places that a text names, each with where."""
        text = _blanked(text, [match.span() for match in _OTHER_NUMBERS.finditer(text)])
        found = [*self._versions(text, heading)]
        for match in _SM.finditer(text):
            capability = int(match[1] or f"{match[3]}{match[4]}")
            target = Target(capability=capability, suffix=(match[2] or "").lower())
            if not target.suffix and self._tool not in (PTXAS, NVCC):
                target = exact_target(capability)
            found.append((match.span(), Place(target=target)))
        for match in _SOLD.finditer(text):
            capability = int((match.lastgroup or "").removeprefix("sm"))
            found.append((match.span(), Place(target=exact_target(capability))))
        found += [(match.span(), Place(level=int(match[1]))) for match in _LEVEL.finditer(text)]
        functions = {name for program in self._programs for name in program.functions}
        for match in _CODE_SPAN.finditer(text):
            if re.match(r"(\w+)\(.*\)$", match[1]) and match[1].partition("(")[0] in functions:
                found.append((match.span(), Place(call=match[1])))
        return sorted(found, key=lambda each: each[0])

    def _versions(self, text: str, heading: str) -> Iterator[tuple[tuple[int, int], Place]]:
        before: re.Match[str] | None = None
        mine = [match for match in _VERSION.finditer(text) if self._is_mine(match, heading)]
        for match, after in itertools.zip_longest(mine, mine[1:]):
            tool = self._tool
            if PTXAS in (match["tool"] or "").lower() and self._tool == TRITON:
                tool = PTXAS
            version = Versions(
                tool=tool,
                first=match["number"],
                since=bool(_SINCE.search(text[: match.start()])),
                before=bool(_BEFORE.search(text[: match.start()])),
            )
            longer = (other["number"] for other in mine if other is not match)
            if any(number.startswith(f"{match['number']}.") for number in longer):
                continue
            if before and _RANGE.fullmatch(text[before.end() : match.start()]):
                before = None
                continue
            before = match
            end = match.end()
            if after and _RANGE.fullmatch(text[end : after.start()]):
                version, end = replace(version, last=after["number"]), after.end()
            yield (match.start(), end), Place(versions=version)
        for newest in _NEWEST.finditer(text):
            yield newest.span(), Place(versions=Versions(tool=self._tool, dated=True))

    def _is_mine(self, match: re.Match[str], heading: str) -> bool:
        """Whether a number is a version of what compiles the program, or of ptxas behind it."""
        if match["tool"]:
            tool = _TOOLS[match["tool"].lower()]
            is_cuda = tool == PTXAS and self._tool == NVCC
            is_named = match["tool"].lower() == PTXAS
            return tool == self._tool or is_cuda or (is_named and self._tool == TRITON)
        if self._tool in heading.lower():
            return True
        number = match["number"]
        known = self._releases.get(self._tool, ())
        return any(release == number or release.startswith(f"{number}.") for release in known)


def _nearest(
    clause: str, span: tuple[int, int], outcomes: Sequence[tuple[int, int]], *, is_before: bool
) -> int:
    """Which outcome a place belongs to: one without a comma between, else as they follow.

    `is_before`: the clause names places before what they do ("-O2, -O3 fail, -O0 works").
    """
    after = [n for n, (start, _) in enumerate(outcomes) if start >= span[1]][:1]
    behind = [n for n, (_, end) in enumerate(outcomes) if end <= span[0]][-1:]
    for n in (*after, *behind):
        start, end = outcomes[n]
        if "," not in clause[min(end, span[1]) : max(start, span[0])]:
            return n
    return next(iter([*after, *behind] if is_before else [*behind, *after]), 0)


def _outcome(match: re.Match[str]) -> Outcome:
    return _WORDS[int((match.lastgroup or "w0")[1:])][0]


def _blanked(text: str, spans: Sequence[tuple[int, int]]) -> str:
    for start, end in spans:
        text = text[:start] + " " * (end - start) + text[end:]
    return text


def _crossed(parts: Sequence[Place]) -> list[Place]:
    """Every version with every target, level and call; one place without any where none is said."""
    names = Place.__struct_fields__
    said = [dict.fromkeys(getattr(part, name) for part in parts) for name in names]
    choices = [[value for value in values if value is not None] or [None] for values in said]
    return [Place(**dict(zip(names, each, strict=True))) for each in itertools.product(*choices)]
