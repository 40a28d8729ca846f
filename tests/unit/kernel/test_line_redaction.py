"""One hook for all that is written of an error: whatever it does, no text passes it by, and nothing stops."""

from collections.abc import Callable
from typing import Any

import pytest

from relay.kernel.failure import MOST_CHARACTERS
from relay.kernel.line_redaction import REDACTED, WITHHOLDING, Redaction

SECRET = "Quuxley"  # noqa: S105 -- what must not be left


def without(line: dict[str, Any]) -> dict[str, Any]:
    """A hook that knows what it looks for, wherever it stands."""
    return {name: value.replace(SECRET, "…") if isinstance(value, str) else value for name, value in line.items()}


def raises(line: dict[str, Any]) -> dict[str, Any]:
    """A hook that breaks, and says all that it was given."""
    raise ValueError(line)


def leaves(_: dict[str, Any]) -> dict[str, Any]:
    """A hook that ends its process."""
    raise SystemExit(1)


def test_without_a_hook_everything_is_as_it_was() -> None:
    """It costs nothing, and changes nothing."""
    redaction = Redaction()
    error = RuntimeError(f"customer {SECRET} has moved")

    assert redaction.of_error("row_failed", error) == ("RuntimeError", f"RuntimeError: customer {SECRET} has moved")
    assert redaction.fields("failed_row", {"id": 7, "last_error": SECRET}) == {"id": 7, "last_error": SECRET}
    assert not redaction.asks


def test_the_hook_is_asked_as_for_the_line() -> None:
    """With its name, its level and its fields: what redacts the log redacts everything."""
    asked: list[dict[str, Any]] = []

    def hook(line: dict[str, Any]) -> dict[str, Any]:
        asked.append(line)
        return without(line)

    said = Redaction(hook).of_error("row_failed", RuntimeError(f"customer {SECRET} has moved"), aggregate_id=SECRET)

    assert said == ("RuntimeError", "RuntimeError: customer … has moved")
    assert asked == [
        {
            "event": "row_failed",
            "level": "error",
            "aggregate_id": SECRET,
            "code": "RuntimeError",
            "error": f"RuntimeError: customer {SECRET} has moved",
        }
    ]


@pytest.mark.parametrize(
    "hook",
    [
        raises,
        leaves,
        lambda _: None,
        lambda _: {},
        lambda _: {"error": None, "code": 7},
        lambda _: 7,
        lambda _: [SECRET],
    ],
)
def test_a_hook_that_fails_leaks_nothing(hook: Callable[[dict[str, Any]], Any]) -> None:
    """Nor does it raise, for whoever stores or shows the text goes on."""
    complaints: list[dict[str, Any]] = []
    redaction = Redaction(hook, complaints.append)

    for _ in range(2):
        assert redaction.of_error("row_failed", RuntimeError(SECRET)).error == REDACTED
        assert redaction.fields("failed_row", {"id": 7, "last_error": SECRET}, {"last_error": "error"}) == {
            "id": 7,
            "last_error": REDACTED,
        }
    assert SECRET not in str(complaints)
    assert len(complaints) <= 1


def test_what_a_hook_makes_of_a_text_can_be_stored() -> None:
    """The table takes neither a NUL nor more than so many characters, and a row must not wait for that."""
    said = Redaction(lambda line: line | {"error": "a\0b\n\ud800" + "x" * 9_999}).of_error("row_failed", RuntimeError())

    assert said.error.startswith("a b")
    assert len(said.error) == MOST_CHARACTERS
    assert said.error.encode().decode().isprintable()


def test_a_command_that_has_no_hook_where_there_should_be_one_shows_no_text() -> None:
    """The code alone is ours to show."""
    assert WITHHOLDING.lines(RuntimeError(SECRET), f"{SECRET}\n{SECRET}") == f"{REDACTED}\n{REDACTED}"


def test_each_line_of_a_complaint_is_asked_about() -> None:
    """A connection's error has several."""
    assert Redaction(without).lines(RuntimeError(), f"to {SECRET}\n\nat 5432") == "to …\nat 5432"
