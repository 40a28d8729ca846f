# ruff: noqa: E501 -- each sentence stands as it is printed
"""Which failed rows block their key, and what says nothing about it."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.cli.runners import publish_policy
from relay.failed_head import FailedHead
from relay.patterns import _REMEMBERED
from relay.routes import Routes
from relay.settings import load

# Short texts of few characters match each other often.
NAMES = st.text(alphabet="ab._%=ä", min_size=1, max_size=4)
PATTERNS = st.builds(lambda name, star: name + star, NAMES, st.sampled_from(["", "*"]))
WORDS = st.sampled_from(["block", "skip"])


@pytest.mark.parametrize(("text", "blocks"), [("", True), (" \n", True), ("block", True), ("skip", False)])
def test_one_word_is_for_all(text: str, *, blocks: bool) -> None:
    """And nothing at all is block."""
    assert FailedHead.parse(text).blocks("order.paid") is blocks


def test_what_nobody_has_chosen_blocks() -> None:
    """The order within a key is kept until someone gives it up."""
    assert FailedHead() == FailedHead.parse("") == FailedHead.parse("block")
    assert FailedHead().blocks("order.paid")


@pytest.mark.parametrize(
    ("event_type", "blocks"),
    [
        ("order.paid", True),
        ("audit.login", False),
        ("audit.", False),
        ("audit", True),
        ("Audit.login", True),
        ("audit.money.moved", True),
        ("audit.money.seen", False),
        ("order.note", False),
        ("order.noted", True),
    ],
)
def test_the_most_specific_pattern_decides(event_type: str, *, blocks: bool) -> None:
    """As it does for routes, wherever it stands; the default may be left out."""
    parts = ["audit.*=skip", "audit.money.*=block", "audit.money.seen=skip", "order.note=skip"]
    for text in ("block, " + ", ".join(parts), "block\n" + "\n".join(reversed(parts)), ",".join(parts)):
        policy = FailedHead.parse(text)
        # Twice: the second answer is one that was remembered.
        assert [policy.blocks(event_type) for _ in range(2)] == [blocks, blocks]


@pytest.mark.parametrize(
    "text",
    [
        " skip , audit.* = block,order.note=skip ",
        "skip\naudit.*=block\norder.note=skip",
        "\n skip,\r\n\r\n  order.note = SKIP,\n audit.*=Block\n",
        "Skip, order.note=skip, audit.*=block",
    ],
)
def test_one_list_may_be_written_in_many_ways(text: str) -> None:
    """The two words in capitals too, as other settings' words; equal lists are equal."""
    same = FailedHead.parse("skip,audit.*=block,order.note=skip")

    assert FailedHead.parse(text) == same
    assert hash(FailedHead.parse(text)) == hash(same)


@pytest.mark.parametrize(
    "part",
    [
        "block audit.*=skip",
        "skip; order.*=block",
        "block; audit.*=skip",
        "block;audit.*=skip",
        "audit.*=skip; order.*=block",
        "audit.*=skip order.*=block",
        "order.note=skip\torder.paid=block",
        "order\u00a0note=skip",
        ";order.note=skip",
    ],
)
@pytest.mark.parametrize("before", ["", "block, "])
def test_a_comma_that_is_missing_is_no_part_of_a_type(part: str, before: str) -> None:
    """It would be a type that no event has, and the list would say nothing of what was meant."""
    with pytest.raises(ValueError, match="put a comma") as refused:
        FailedHead.parse(before + part)
    assert str(refused.value) == (
        f"has the part {part!r}, whose pattern has a space or a semicolon; "
        "put a comma between parts, like block, audit.*=skip, and write a type with a space by its beginning, like a*"
    )


@pytest.mark.parametrize("part", ["skip=block", "block = skip", "Skip=skip", "BLOCK=block"])
def test_the_two_words_are_no_types(part: str) -> None:
    """`skip=block` is a default and a type that lost its name, not the type `skip`."""
    with pytest.raises(ValueError, match="put a comma") as refused:
        FailedHead.parse(part)
    assert str(refused.value) == (
        f"has the part {part!r}, which has {part.partition('=')[0].strip()!r} for a type; "
        "put a comma between the default and the types, like block, audit.*=skip"
    )


def test_types_that_only_look_like_them_are_types() -> None:
    """Also one with a space, by its beginning."""
    policy = FailedHead.parse("block*=skip, skipped=skip, order*=skip")
    assert not any(map(policy.blocks, ["block", "blocked", "skipped", "order paid", "order; paid"]))
    assert policy.blocks("skip")


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("", ""),
        ("skip", ""),
        ("block, audit.*=skip", "audit.* skip, all others block"),
        (
            "skip\norder.*=block, order.note=SKIP, order.re*=block",
            "order.note skip, order.re* block, order.* block, all others skip",
        ),
    ],
)
def test_a_list_says_what_it_means(text: str, meaning: str) -> None:
    """In the order in which its parts decide; one word needs no explanation."""
    assert FailedHead.parse(text).meaning == meaning


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "stop",
            "has the part 'stop', which is neither block nor skip nor a type with one of them; write it like audit.*=skip",
        ),
        (
            "audit.*",
            "has the part 'audit.*', which is neither block nor skip nor a type with one of them; write it like audit.*=skip",
        ),
        (
            "block skip",
            "has the part 'block skip', which is neither block nor skip nor a type with one of them; write it like audit.*=skip",
        ),
        (
            "=skip",
            "has the part '=skip', which is neither block nor skip nor a type with one of them; write it like audit.*=skip",
        ),
        (
            "audit.*=",
            "has the part 'audit.*=', which is neither block nor skip nor a type with one of them; write it like audit.*=skip",
        ),
        ("block, audit.*=pass", "has the part 'audit.*=pass', which ends in 'pass'; write block or skip there"),
        ("block,,a=skip", "has an empty part in 'block,,a=skip'; remove the comma that is too many"),
        ("a=skip, block", "has the part 'block' after its first; the default stands first, once"),
        ("skip, skip", "has the part 'skip' after its first; the default stands first, once"),
        ("a=skip,a=skip", "names 'a' twice, for skip and for skip; keep one"),
        ("a*=skip\nb=skip\na*=block", "names 'a*' twice, for skip and for block; keep one"),
        (
            "*=skip",
            "has the part '*=skip', whose pattern would match every event type; write the default for all others first, as block or skip alone",
        ),
        (
            "a.*.b=skip",
            "has the part 'a.*.b=skip', whose pattern has a * before its end; write the beginning of an event type, then one *",
        ),
        ("a\udcff=skip", "has the part 'a\\udcff=skip', whose pattern is not UTF-8"),
    ],
)
def test_what_says_nothing_is_refused_with_the_part_that_does_not(text: str, sentence: str) -> None:
    """In one sentence that follows the setting's name."""
    with pytest.raises(ValueError, match=r"^(has|names) ") as refused:
        FailedHead.parse(text)
    assert str(refused.value) == sentence


def test_a_long_part_is_not_repeated_whole() -> None:
    """A log line stays a line."""
    for text in ("x" * 5_000, "a=" + "x" * 5_000):
        with pytest.raises(ValueError, match="…") as refused:
            FailedHead.parse(text)
        assert len(str(refused.value)) < 350


@given(
    chosen=st.dictionaries(PATTERNS.map(str.strip), WORDS, max_size=8),
    default=st.sampled_from(["", "block", "skip"]),
    event_type=NAMES,
)
def test_the_winner_is_the_one_of_the_same_routes(chosen: dict[str, str], default: str, event_type: str) -> None:
    """Who knows which route decides knows which part of this list does."""
    # A route's topic needs three letters at least, so that `block` and `skip` may stand for topics.
    patterns = ",".join(f"{pattern}={word}" for pattern, word in chosen.items())
    routes = Routes.parse(patterns, default or "block")

    policy = FailedHead.parse(",".join(filter(None, [default, patterns])))

    assert policy.blocks(event_type) is (routes.topic_of(None, event_type) == "block")


@given(text=st.text(alphabet="ab*=,\n blockskip", max_size=20))
def test_every_text_is_read_or_refused_in_one_line(text: str) -> None:
    """Nothing else comes out."""
    assert re.fullmatch(r"True|False|(has|names) .+", answer_to(text))


def answer_to(text: str) -> str:
    """What this text says of a type, or why it says nothing."""
    try:
        return str(FailedHead.parse(text).blocks("a"))
    except ValueError as error:
        return str(error)


def test_event_types_without_end_are_not_remembered_without_end() -> None:
    """A service that counts in its event types costs its relay no memory."""
    policy = FailedHead.parse("order.*=skip")
    for number in range(_REMEMBERED + 2):
        assert not policy.blocks(f"order.{number}")
    assert len(policy._known) <= _REMEMBERED


def test_what_is_set_is_what_publishes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`relay run` and `relay tick` build their publisher with it."""
    monkeypatch.chdir(tmp_path)  # away from anybody's .env
    monkeypatch.delenv("RELAY_ON_FAILED_HEAD", raising=False)
    assert publish_policy(load()).failed_head == FailedHead()
    monkeypatch.setenv("RELAY_ON_FAILED_HEAD", "skip, order.*=block")
    assert publish_policy(load()).failed_head == FailedHead.parse("skip, order.*=block")
