"""What `consumers deliveries` says, and what it does not take."""

import argparse
import json
from typing import Any

import pytest

from consumers.cli import delivery_words as words
from consumers.cli import main
from consumers.cli.main import _parser
from consumers.errors import ConfigurationError
from consumers.inbox.operate.choice import State, names_of
from consumers.inbox.operate.rows import Action, Entry, Group, Listed, Tally
from relay.kernel.line_redaction import WITHHOLDING, Redaction
from tests.support.commands import ROOT

LISTED = Listed(
    id=7,
    consumer="billing",
    event_id="0190163d-8694-739b-aea5-966c26f8ad91",
    recipient="",
    event_type="order.paid",
    ordering_key="k",
    state="pending",
    outcome=None,
    attempts=2,
    code="TIMEOUT",
    error="it took too long\x1b[2J " + "x" * 80,
    age_seconds=7_325.0,
    due_in_seconds=12.2,
    created_at="2024-01-31 12:00:00+00",
    available_at="2024-01-31 14:02:17.5+00",
    finished_at=None,
)


def test_a_table_has_a_line_for_each_in_columns() -> None:
    """A long error is cut, and what a terminal would obey is not shown."""
    head, line = words.table([LISTED])
    assert head.split() == [
        "ID",
        "EVENT_ID",
        "CONSUMER",
        "EVENT_TYPE",
        "STATE",
        "AGE",
        "ATTEMPTS",
        "DUE",
        "CODE",
        "ERROR",
    ]
    assert line.split()[:10] == [
        *("7", LISTED.event_id, "billing", "order.paid", "pending", "2h2m", "2", "in", "12s", "TIMEOUT"),
    ]
    assert line.endswith("…")
    assert "\x1b" not in line
    assert line.index("TIMEOUT") == head.index("CODE")
    assert list(words.table([])) == []


@pytest.mark.parametrize(
    ("state", "due", "shown"), [("pending", -3.0, "now"), ("sent", 90.0, "in 1m30s"), ("done", None, "-")]
)
def test_a_delivery_is_due_now_later_or_not_at_all(state: str, due: float | None, shown: str) -> None:
    """Only what waits has a time."""
    head, line = words.table([LISTED._replace(state=state, due_in_seconds=due)])
    assert line[head.index("DUE") : head.index("CODE")].strip() == shown


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-4, "0s"), (0.4, "0s"), (59.4, "59s"), (60, "1m"), (3_601, "1h"), (90_061, "1d1h"), (8_640_000, "100d")],
)
def test_an_age_has_its_two_largest_units(seconds: float, text: str) -> None:
    """Nobody reads more of it."""
    assert words.age(seconds) == text


def test_a_script_gets_times_that_it_can_read() -> None:
    """And everything else as it is."""
    said = json.loads(json.dumps(words.listed_as_json(LISTED)))
    assert (said["created_at"], said["finished_at"], said["id"]) == ("2024-01-31T12:00:00.000000Z", None, 7)


def test_counts_are_put_together_by_the_fields_that_are_asked_for() -> None:
    """In the order of these fields."""
    groups = {Group("b", "x", "failed", "C"): 2, Group("a", "x", "failed", "D"): 3, Group("a", "y", "done", ""): 1_000}
    counts = words.counted(groups, ["event_type", "state"])
    assert counts == [
        {"event_type": "x", "state": "failed", "count": 5},
        {"event_type": "y", "state": "done", "count": 1_000},
    ]
    assert list(words.count_table(counts)) == [
        "EVENT_TYPE  STATE   COUNT",
        "x           failed  5",
        "y           done    1,000",
    ]
    assert list(words.count_table([])) == []


def known() -> dict[str, Any]:
    """Some of what is known of a delivery."""
    return {
        "id": 7,
        "error": "iban DE02",
        "result": '{"n": 1}',
        "attributes": "{}",
        "due_at": None,
        "created_at": "2024-01-31 12:00:00+00",
        "envelope": '{"data": {"iban": "DE02"}}',
    }


HISTORY = [
    Entry("2024-01-31 12:00:00+00", "retry", {"error": "iban DE02", "again_in": 5.0, "steps": [{"iban": "DE02"}]})
]


def test_all_that_is_known_is_shown_with_its_history() -> None:
    """For people line by line, for scripts as JSON."""
    shown = words.known_redacted(known(), HISTORY, Redaction())
    lines = list(words.known_lines(shown))
    assert lines[0] == "id               7"
    assert lines[4] == "due_at           -"
    assert lines[6].startswith('envelope         {\n  "data": {\n    "iban"')
    assert lines[7] == (
        "history          2024-01-31T12:00:00.000000Z  retry            error=iban DE02  again_in=5.0  "
        'steps=[{"iban": "DE02"}]'
    )
    said = words.known_as_json(shown)
    assert (said["result"], said["envelope"]) == ({"n": 1}, {"data": {"iban": "DE02"}})
    assert said["history"][0]["detail"]["steps"] == [{"iban": "DE02"}]
    unasked = words.known_redacted({**known(), "envelope": None}, [], Redaction())
    assert "envelope" not in words.known_as_json(unasked)
    assert not [line for line in words.known_lines(unasked) if line.startswith("envelope")]


def test_the_users_hook_is_asked_about_every_text() -> None:
    """Also about the JSON in it, and about what is built of texts in its history."""

    def hook(line: dict[str, Any]) -> dict[str, Any]:
        return {name: value.replace("DE02", "…") if isinstance(value, str) else value for name, value in line.items()}

    shown = words.known_redacted(known(), HISTORY, Redaction(hook))
    assert "DE02" not in "".join(words.known_lines(shown))
    assert "DE02" not in json.dumps(words.known_as_json(shown))
    assert shown["history"][0]["detail"]["steps"] == [{"iban": "…"}]
    assert words.redacted(LISTED._replace(error="DE02"), Redaction(hook)).error == "…"


def test_a_hook_that_fails_leaves_no_text() -> None:
    """Neither of the row nor of its history."""
    shown = words.known_redacted(known(), HISTORY, WITHHOLDING)
    assert "DE02" not in json.dumps(words.known_as_json(shown)) + "".join(words.known_lines(shown))
    assert words.redacted(LISTED, WITHHOLDING).error == "(redacted)"


def test_an_action_says_what_it_did_and_what_it_left() -> None:
    """With the ids of the first few, and what to do about them."""
    tally = Tally()
    tally.act([LISTED._replace(state=state) for state in ("failed", "sent", "discarded", "done")])
    for id_ in range(7):
        tally.leave(LISTED._replace(id=id_), "processing")
    tally.leave(LISTED, "held")
    said = list(words.acted(Action.RETRY, tally, dry_run=False))
    assert said[0] == "4 deliveries retried"
    assert said[1] == "1 of them had been sent and not confirmed: their handlers send again"
    assert said[-2].startswith("7 left alone (0, 1, 2, 3, 4 and 2 more): being processed now: wait for the end, or")
    assert said[-1] == "1 left alone (7): held by another transaction: run the command again"
    assert [line.partition(" of them ")[2][:30] for line in said[2:5]] == [
        "had been done: what their hand",
        "had been discarded, and may fa",
        "have an ordering key that went",
    ]
    assert next(words.acted(Action.DISCARD, Tally(acted=1), dry_run=True)) == "1 delivery would be discarded"
    assert words.acted_as_json(Action.RETRY, tally, dry_run=False)["left"]["processing"] == {
        "count": 7,
        "ids": [0, 1, 2, 3, 4],
    }


@pytest.mark.parametrize("state", State)
def test_what_is_processed_is_never_acted_on(state: State) -> None:
    """And what is done only where that was said."""
    retried, discarded = Action.RETRY.fits(state, done=False), Action.DISCARD.fits(state, done=True)
    assert retried == (state in {State.FAILED, State.DISCARDED, State.SENT})
    assert Action.RETRY.fits(state, done=True) == (retried or state is State.DONE)
    assert discarded == (state in {State.FAILED, State.PENDING})


def test_names_are_ids_or_event_ids() -> None:
    """Each once; nothing else is one, and no number is too large for Postgres."""
    ids, event_ids = names_of(["7", "7", "0190163D-8694-739b-aea5-966c26f8ad91", str(2**63 - 1)])
    assert (ids, [str(each) for each in event_ids]) == ([7, 2**63 - 1], [LISTED.event_id])
    for wrong in ("x", str(2**63), "-1", "٣", "9" * 5_000, ""):
        with pytest.raises(ConfigurationError, match="neither the id of a delivery nor an event_id"):
            names_of([wrong])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("deliveries", "the following arguments are required: ACTION"),
        ("deliveries list --state lost", "'lost' is no state; there are pending, processing, sent, done, failed, disc"),
        ("deliveries list --limit 0", "'0' is no number from 1 on"),
        ("deliveries list --after x", "'x' is no id; copy it from the end of the page before"),
        ("deliveries list --type *", "'*': pattern would match every event type; leave --type out"),
        ("deliveries list --event-id 7", "'7' is no event_id, which is a UUID"),
        ("deliveries list --since yesterday", "'yesterday' is neither a duration such as 2h nor an RFC 3339 time"),
        ("deliveries count --by age", "'age' is none of consumer, type, state, code"),
        ("deliveries count --alert-above -1", "'-1' is not a number of deliveries, 0 or more"),
        ("failed --alert-above x", "'x' is not a number of deliveries, 0 or more"),
        ("failed --state done", "unrecognized arguments: --state done"),
        ("deliveries retry 7 --al", "unrecognized arguments: --al"),
    ],
)
def test_a_call_that_cannot_be_meant_is_refused_by_its_words(
    arguments: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 2, before a setting is read."""
    with pytest.raises(SystemExit) as ended:
        _parser().parse_args(arguments.split())
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("list --limit 10001", "--limit is 10,001; it is from 1 to 10,000"),
        ("retry", "no delivery is chosen: name ids, a filter such as --code TIMEOUT, or --all-failed"),
        ("retry 7 --code X", "only --consumer goes with names"),
        ("retry 7 --all-failed", "only --consumer goes with names"),
        ("retry --all-failed --state sent", "--all-failed and --state are about the same"),
        ("retry --state done --reason x", "what is done is retried only with --done"),
        ("retry --state done --done", "--reason is missing: with --done say why"),
        ("retry --done --code X --reason x", "--done goes with ids, or with --state done"),
        ("discard 7", "--reason is missing: say why you do it"),
        ("discard 7 --reason x --by /", "DATABASE_URL is not set"),
        ("retry x7", "'x7' is neither the id of a delivery nor an event_id"),
        ("show x7", "'x7' is neither the id of a delivery nor an event_id"),
    ],
)
def test_a_call_that_makes_no_sense_is_refused_before_anything_is_asked(
    arguments: str, sentence: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """With what to write instead."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATABASE_URL", "")
    assert main(["deliveries", *arguments.split()]) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("reason", [" ", "x" * 1_025])
def test_a_reason_that_says_nothing_is_refused(reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It is kept for good."""
    assert main(["deliveries", "discard", "7", "--reason", reason]) == 2
    assert "it is recorded, 1 to 1,024" in capsys.readouterr().err


def test_every_option_that_chooses_is_one_of_the_page() -> None:
    """So that the table in docs/deliveries.md is whole."""
    page = (ROOT / "docs/deliveries.md").read_text(encoding="utf-8")
    (actions,) = (each for each in _parser()._actions if isinstance(each, argparse._SubParsersAction))
    (kinds,) = (each for each in actions.choices["deliveries"]._actions if isinstance(each, argparse._SubParsersAction))
    for kind in kinds.choices.values():
        for action in kind._actions:
            for option in action.option_strings:
                assert f"{option}" in page or option in {"-h", "--help", "--by"}, option
