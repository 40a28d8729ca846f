"""What a command prints of an error that was foreseen, and the exit code."""

import argparse
import sys
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

import relay.cli
from relay.errors import AuditError, BrokerError, ConfigurationError, SchemaError

SECRET = "hunter2"  # noqa: S105 -- made up, to be looked for in what is printed


class _Diag:
    """What the driver keeps of a server's error."""

    source_function = "ExecConstraints"

    def __init__(self, primary: str, function: str = source_function) -> None:
        self.message_primary = primary
        self.source_function = function


class _ServerError(psycopg.Error):
    """An error as a server sends it."""

    def __init__(self, state: str, primary: str, function: str = _Diag.source_function) -> None:
        super().__init__(f"{primary}\nDETAIL:  Key (card)=({SECRET}) already exists.\nCONTEXT:  {SECRET}")
        self.sqlstate = state
        self._diag = _Diag(primary, function)

    @property
    def diag(self) -> Any:
        return self._diag


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[Exception], Any]:
    """Run a command that raises; answer with its exit code and the lines on stderr."""

    def run(error: Exception) -> tuple[int, list[str]]:
        def command(_: argparse.Namespace) -> int:
            raise error

        parser = argparse.ArgumentParser()
        parser.set_defaults(command=command)
        monkeypatch.setattr(sys.modules["relay.cli.main"], "_parser", lambda: parser)
        code = relay.cli.main([])
        said = capsys.readouterr()
        assert said.out == ""
        return code, said.err.splitlines()

    return run


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            _ServerError("42501", "permission denied for table outbox_events"),
            "42501: permission denied for table outbox_events",
        ),
        (
            _ServerError("23505", 'duplicate key value violates unique constraint "outbox_events_event_id_key"'),
            '23505: duplicate key value violates unique constraint "outbox_events_event_id_key"',
        ),
        (
            _ServerError("57014", "canceling statement due to statement timeout"),
            "57014: canceling statement due to statement timeout",
        ),
        (
            _ServerError("22P02", f'invalid input syntax for type uuid: "{SECRET}"'),
            '22P02: invalid input syntax for type uuid: "…"',
        ),
        (
            _ServerError("P0001", f"card {SECRET} is refused", "exec_stmt_raise"),
            "P0001: raised by a function of the database; the server's log has its text",
        ),
        (BrokerError("NOT_FOUND", "no topic (resource=orders)."), "NOT_FOUND: no topic (resource=orders)."),
        (BrokerError("INVALID_ARGUMENT", f'the value "{SECRET}" is'), 'INVALID_ARGUMENT: the value "…" is'),
        (psycopg.OperationalError("the connection is lost"), "the connection is lost"),
        (psycopg.OperationalError(f"cannot reach postgresql://u:{SECRET}@h/db"), "cannot reach postgresql://…@h/db"),
        (psycopg.OperationalError(), "OperationalError"),
        (AuditError("the audit could not be finished"), "the audit could not be finished"),
    ],
)
def test_what_failed_is_said_without_the_data_it_is_about(
    error: Exception, line: str, printed: Callable[[Exception], Any]
) -> None:
    """Exit 1, and one line with all that an operator can use."""
    assert printed(error) == (1, [f"relay: {line}"])


def test_every_address_that_libpq_tried_is_named(printed: Callable[[Exception], Any]) -> None:
    """And its hint; nothing of a password that got in between."""
    said = (
        'connection failed: connection to server at "::1", port 1 failed: Connection refused\n'
        "\tIs the server running on that host and accepting TCP/IP connections?\n"
        f'connection to server at "127.0.0.1", port 1 failed: password={SECRET} is refused\n'
    )

    assert printed(psycopg.OperationalError(said)) == (
        1,
        [
            'relay: connection failed: connection to server at "::1", port 1 failed: Connection refused',
            "relay: Is the server running on that host and accepting TCP/IP connections?",
            'relay: connection to server at "127.0.0.1", port 1 failed: password=… is refused',
        ],
    )


@pytest.mark.parametrize("kind", [ConfigurationError, SchemaError])
def test_a_wrong_configuration_is_said_line_by_line(
    kind: type[ConfigurationError], printed: Callable[[Exception], Any]
) -> None:
    """Exit 2; its sentences are our own, and stand as they are."""
    assert printed(kind("RELAY_A is 'x'\nwrite it like postgresql://user:password@host:5432/db")) == (
        2,
        ["relay: RELAY_A is 'x'", "relay: write it like postgresql://user:password@host:5432/db"],
    )


@pytest.mark.parametrize(
    "words",
    [
        ["failed", "list", "--type", "\udcff"],
        ["failed", "retry", "a\udcff"],
        ["emit", "a.b", "--data", f"{SECRET}\udc80"],
        ["topics", "ensure", "\udcff"],
        ["\udcff"],
    ],
)
def test_an_argument_that_is_no_text_is_refused_by_its_place(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Of any command, before anything is asked; what it holds may be data."""
    assert relay.cli.main(words) == 2
    assert capsys.readouterr() == ("", f"relay: argument {len(words)} is not UTF-8; nothing was done\n")
