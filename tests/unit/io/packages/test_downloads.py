from __future__ import annotations

from harness.io.packages.wheels import telling, told_to, words_of

RESOLVED = "Resolved 5 packages in 117ms\n"
BEGUN = (
    "Downloading nvidia-nvvm (58.7MiB)\nDownloading a (1.2GiB)\nDownloading b (3MiB)\n"
    "Downloading c (4.0MiB)\nDownloading d (5.0MiB)\n"
)


def test_what_is_on_its_way() -> None:
    assert words_of("") is None
    assert words_of(RESOLVED) is None
    text = RESOLVED + BEGUN
    assert (
        words_of(text)
        == "0 of 5 downloads done, nvidia-nvvm (58.7MiB), a (1.2GiB), b (3MiB) and 2 more"
    )
    text += " Downloaded nvidia-nvvm\n Downloaded a\n"
    assert words_of(text) == "2 of 5 downloads done, b (3MiB), c (4.0MiB), d (5.0MiB)"
    text += " Downloaded b\n Downloaded c\n Downloaded d\nPrepared 5 packages in 430ms\n"
    assert words_of(text) == "5 of 5 downloads done, unpacking"
    # A line that is only half there yet says nothing.
    assert words_of("Downloading nvidia-nvvm (58.7M") is None


def test_only_who_asks_is_told() -> None:
    assert told_to() is None
    told: list[str] = []
    with telling(told.append):
        watch = told_to()
        assert watch is not None
        watch(RESOLVED)
        watch(BEGUN.partition("\n")[0] + "\n")
    assert told == ["0 of 1 downloads done, nvidia-nvvm (58.7MiB)"]
    assert told_to() is None
