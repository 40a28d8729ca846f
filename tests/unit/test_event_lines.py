"""Reading events of a file: bounded, and silent about their data."""

import io
import json
import os
import threading
from collections.abc import Iterator
from decimal import Decimal
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.cli import event_lines
from relay.cli.emit import _refusal
from relay.cli.event_lines import Line, chunks, events_of, json_of, opened
from relay.errors import ConfigurationError, InvalidEventError
from tests.support.outbox import event

GOOD = b'{"event_type": "a.b", "aggregate_type": "a", "aggregate_id": "1", "data": {"n": 1}}'


def test_chunks_are_bounded_in_events_and_in_bytes() -> None:
    """A last line that goes beyond is still of its chunk; nothing is lost, and the order is kept."""
    small = [Line(number, event(), 100) for number in range(1, 2_302)]
    assert [len(chunk) for chunk in chunks(small)] == [1_000, 1_000, 301]
    assert [line for chunk in chunks(small) for line in chunk] == small
    large = [Line(number, event(), 3_000_000) for number in range(1, 6)]
    assert [[line.number for line in chunk] for chunk in chunks(large)] == [[1, 2, 3], [4, 5]]
    assert list(chunks([])) == []


def test_a_chunk_is_made_before_what_follows_is_read() -> None:
    """The memory that a file takes does not grow with it."""
    read = 0

    def lines() -> Iterator[Line]:
        nonlocal read
        while True:
            read += 1
            yield Line(read, event())

    taken = list(islice(chunks(lines()), 3))
    assert ([len(chunk) for chunk in taken], read) == ([1_000] * 3, 3_000)


def test_a_line_of_any_length_is_refused_at_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file without line breaks is not read into memory."""
    monkeypatch.setattr(event_lines, "LINE_BYTES", len(GOOD) + 1)
    assert len(list(events_of(io.BytesIO(GOOD + b"\n" + GOOD)))) == 2
    with pytest.raises(ConfigurationError, match=r"^line 2 has more than \d+ bytes; nothing was stored$"):
        list(events_of(io.BytesIO(GOOD + b"\n" + GOOD + b"  \n")))


def test_what_other_systems_write_is_read() -> None:
    """Carriage returns, blank lines, a byte order mark, no last line break."""
    lines = list(events_of(io.BytesIO(b"\xef\xbb\xbf" + GOOD + b"\r\n\r\n \n" + GOOD)))
    assert [line.number for line in lines] == [1, 4]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"\xff\xfe", "line 2 is not UTF-8"),
        (b"{", "line 2 is not JSON: Expecting property name enclosed in double quotes at character 2"),
        (b"7" * 5_000, "line 2 is not JSON: a number has more digits than can be kept; write it as a text"),
        (b"0.12345678901234567890", "line 2 is not JSON: a number has more digits"),
        (b"1e400", "line 2 is not JSON: a number has more digits"),
        (b"0e-99999999999999999999", "line 2 is not JSON: a number has more digits"),
        (
            b'{"data": {"n": [{"a": 1, "a": 2}]}}',
            "line 2 is not JSON: an object in it has the same key twice; keep one",
        ),
        (GOOD[:-1] + b', "data": {}}', "line 2 is not JSON: an object in it has the same key twice; keep one"),
        (b"[" * 100_000, "line 2 is not JSON: it is nested too deep"),
        (b"7", "line 2 is a JSON int, not an object"),
        (b"{}", "line 2: Event: has no event_type; has no aggregate_type"),
    ],
)
def test_a_line_that_is_no_event_is_told_by_its_number(text: bytes, words: str) -> None:
    """And with what is wrong, in one sentence."""
    with pytest.raises(ConfigurationError) as refused:
        list(events_of(io.BytesIO(GOOD + b"\n" + text)))
    assert str(refused.value).startswith(words)
    assert str(refused.value).endswith("; nothing was stored")


@pytest.mark.parametrize("number", ["1.10", "1E5", "-0.0", "123456789012345678901234567890", "1e-300", "19.99"])
def test_a_number_that_is_kept_is_the_one_that_was_written(number: str) -> None:
    """A float is no decimal; one that would be rounded is refused."""
    assert Decimal(json.dumps(json_of(number, "it"))) == Decimal(number)


@given(
    st.recursive(
        st.text(max_size=5).map("hunter2{}".format),
        lambda part: st.lists(part, max_size=3) | st.dictionaries(st.just("hunter2"), part, max_size=1),
        max_leaves=5,
    ),
    st.data(),
)
def test_no_refusal_of_a_damaged_line_tells_its_data(data: object, choice: st.DataObject) -> None:
    """Wherever it is cut off, or a byte in it is another."""
    fields = {"data": data, "aggregate_type": "a", "aggregate_id": "1"}
    line = json.dumps(fields).encode()
    place = choice.draw(st.integers(0, len(line) - 1))
    damage = choice.draw(st.binary(max_size=1))
    damaged = line[:place] + (damage + line[place + 1 :] if damage else b"")
    try:
        list(events_of(io.BytesIO(damaged.replace(b"\n", b" "))))
    except ConfigurationError as error:
        assert "hunter2" not in str(error)  # noqa: PT017 -- blank lines raise nothing


def test_a_pipe_is_read_to_its_end_before_its_first_line_is_used(tmp_path: Path) -> None:
    """No transaction waits for a slow writer."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=((GOOD + b"\n") * 5_000,))
    writer.start()
    with opened(str(pipe)) as file:
        writer.join(timeout=30)
        assert not writer.is_alive()
        assert len(list(events_of(file))) == 5_000


LINES = [Line(4, event()), Line(6, event(event_type="event 7"))]


@pytest.mark.parametrize(
    ("error", "lines", "words"),
    [
        (InvalidEventError("outbox_emit: event 1 has no data", 1), LINES, "line 6 has no data"),
        (InvalidEventError("event 1 (event 7): the data", 1), LINES, "line 6 (event 7): the data"),
        (InvalidEventError("a.b: the data", 0), LINES[:1], "line 4: a.b: the data"),
        (InvalidEventError("outbox_emit: event 0 has no data", 0), [Line(0, event())], "the event has no data"),
        (InvalidEventError("the event 12 of a"), LINES, "one of the lines 4 to 6: the event 12 of a"),
        (InvalidEventError("the data is nested"), LINES[:1], "line 4: the data is nested"),
    ],
)
def test_the_line_stands_for_the_place_in_the_statement(
    error: InvalidEventError, lines: list[Line], words: str
) -> None:
    """Where the database tells it; otherwise it is one of those that were sent together."""
    assert _refusal(error, lines) == words
