"""What is said about an error."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import grpc
import psycopg
import pydantic
import pytest
from google.api_core.exceptions import NotFound
from hypothesis import given
from hypothesis import strategies as st

from relay.errors import ArchiveError, BrokerError, ConfigurationError, MoveError, SchemaError
from relay.kernel.failure import code, origin, redacted, sentence, trace

MARK = "hunter2Marker"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("too big"), "ValueError: too big"),
        (TimeoutError(), "TimeoutError"),
        (
            RuntimeError("new row violates check\nDETAIL:  Failing row contains (secret)."),
            "RuntimeError: new row violates check",
        ),
        (ExceptionGroup("g", [OSError("a"), ExceptionGroup("h", [KeyError("b")])]), "OSError: a; KeyError"),
        (asyncio.CancelledError(), "CancelledError"),
    ],
)
def test_an_error_is_one_line(error: BaseException, text: str) -> None:
    """The kind and the first line: what follows may quote data. Of a group, its errors and not their number."""
    assert sentence(error) == text


def test_the_line_is_bounded() -> None:
    """A megabyte of error text is not logged."""
    assert len(sentence(ValueError("x" * 1_000_000))) == 1_024


def test_the_origin_names_modules_and_lines() -> None:
    """The innermost is last; a deep recursion is cut at its outer end."""

    def fall(depth: int) -> None:
        if not depth:
            raise ValueError
        fall(depth - 1)

    with pytest.raises(ValueError) as caught:  # noqa: PT011 -- it says nothing on purpose
        fall(50)

    line = fall.__code__.co_firstlineno + 2
    assert origin(caught.value)[-1] == f"{__name__}:{line}"
    assert len(origin(caught.value)) == 8
    assert origin(ValueError()) == []


class _Diag:
    """What the driver keeps of a server's error."""

    def __init__(self, primary: str, function: str = "ExecConstraints") -> None:
        self.message_primary = primary
        self.source_function = function


class _ServerError(psycopg.Error):
    """An error as a server sends it."""

    def __init__(self, state: str, diag: _Diag) -> None:
        super().__init__(f"{diag.message_primary}\nDETAIL:  Key (card)=({MARK}) already exists.\nCONTEXT:  {MARK}")
        self.sqlstate = state
        self._said = diag

    @property
    def diag(self) -> Any:
        return self._said


class _Order(pydantic.BaseModel):
    card: int
    names: dict[int, int] = {}
    model_config = pydantic.ConfigDict(extra="forbid")


def _caught(act: Callable[[], object]) -> BaseException:
    with pytest.raises(BaseException) as caught:  # noqa: PT011 -- whatever it raises
        act()
    return caught.value


class _TheirError(ConfigurationError):
    """What somebody else derives from an error of ours."""


def _about(error: psycopg.Error) -> BaseException:
    """One of ours with what a server said in its middle."""
    ours = MoveError(f"rows cannot be moved: {error.diag.message_primary}; nothing was")
    ours.__cause__ = error
    return ours


# Each takes a text that must not be told, and makes an error that holds it.
HOLDERS: list[Callable[[str], BaseException]] = [
    lambda value: _caught(lambda: _Order.model_validate({"card": value})),
    lambda value: _caught(lambda: _Order.model_validate({"card": 1, "names": {f"{value} ": 1}})),
    lambda value: _caught(lambda: _Order.model_validate({"card": 1, value: 1})),
    lambda value: _ServerError("22P02", _Diag(f'invalid input syntax for type uuid: "{value}"')),
    lambda value: _ServerError("22003", _Diag(f'value "{value}" is out of range for type integer')),
    lambda value: _ServerError("22P02", _Diag(f'invalid input value for enum mood: "a" relation "{value}"')),
    lambda value: _ServerError("23505", _Diag(f'duplicate key value violates unique constraint "u"\n{value}')),
    lambda value: _ServerError("P0001", _Diag(f"card {value} is refused", "exec_stmt_raise")),
    lambda value: _ServerError("23514", _Diag(f"card {value} is refused", "exec_stmt_raise")),
    lambda value: _ServerError("22P02", _Diag(f"ungültige Eingabe: „{value}“")),
    lambda value: psycopg.DataError(f"can't parse date {value!r}"),
    lambda value: psycopg.ProgrammingError(f'missing "=" after "{value}" in connection info string'),
    lambda value: _caught(lambda: json.loads(f'{{"card": {value}')),
    lambda value: UnicodeDecodeError("utf-8", value.encode("utf-8", "replace"), 0, 1, "invalid start byte"),
    lambda value: UnicodeEncodeError("ascii", value + " ", 0, 1, "ordinal not in range(128)"),
    KeyError,
    lambda value: ValueError({"card": value}),
    lambda value: ValueError(f"cannot read {value!r}"),
    lambda value: ValueError(f"cannot read {json.dumps({'card': value})}"),
    lambda value: RuntimeError(ValueError(f"cannot read '{value}' and '{value}'")),
    lambda value: BrokerError("INVALID_ARGUMENT", f'the attribute has the value "{value}"'),
    lambda value: NotFound(f"no such thing: '{value}'", errors=[value], details=[value]),  # type: ignore[no-untyped-call]
    lambda value: grpc.aio.AioRpcError(
        grpc.StatusCode.INTERNAL, grpc.aio.Metadata(), grpc.aio.Metadata(), f'wrong: "{value}"', value
    ),
    lambda value: ExceptionGroup("g", [ValueError(f"'{value}'"), KeyError(value)]),
    lambda value: _TheirError(f"no such order: '{value}'"),
    lambda value: _about(_ServerError("22P02", _Diag(f'invalid input syntax for type uuid: "{value}"'))),
    lambda value: _about(_ServerError("P0001", _Diag(f"card {value} is refused", "exec_stmt_raise"))),
]


@pytest.mark.parametrize("hold", HOLDERS)
@given(before=st.text(max_size=40), after=st.text(max_size=40))
def test_no_value_is_told(hold: Callable[[str], BaseException], before: str, after: str) -> None:
    """Whatever stands around it, quotes and line breaks included."""
    error = hold(f"{before}{MARK}{after}")

    assert MARK not in sentence(error)
    assert MARK not in trace(error)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("field email has value alice@example.com, not allowed", "field email has value …, not allowed"),
        ("field name has value John Smith", "field name has value …"),
        ("the value of name, John", "the value of …, John"),
        ("value=John Smith, bad", "value=…, bad"),
        ("field holder: value John Smith, expected an integer", "field holder: value …, expected an integer"),
        ("the value for field holder is John Smith, not an integer", "the value for field holder is …, not an integer"),
        (
            "schema validation failed at /card/holder: John Smith is not an integer",
            "schema validation failed at /card/holder: … is not an integer",
        ),
        ("John Smith is not of type integer", "… is not of type integer"),
        ("<email>alice@x.y</email>", "<email>…</email>"),
        ("bad element <holder id=1>John Smith</holder> found", "bad element <holder id=1>…</holder> found"),
    ],
)
def test_a_value_without_quotes_is_cut_where_words_announce_it(said: str, told: str) -> None:
    """What stays says which field is wrong, and how."""
    assert sentence(BrokerError("INVALID_ARGUMENT", said)) == f"BrokerError: INVALID_ARGUMENT: {told}"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("mail alice.b+c@mail.example.com bounced", "mail … bounced"),
        ("password is hunter2", "password is …"),
        ("the password was swordfish", "the password was …"),
        ("the password for alice is swordfish, sorry", "the password for alice is …, sorry"),
        ("token hunter2secret rejected", "token … rejected"),
        ("API key hunterSecret rejected", "API key … rejected"),
        ("key was sk-proj-abcdef0123456789", "key was …"),
        ("connect postgresql://u:p w@h/db failed", "connect postgresql://…@h/db failed"),
        ("connect postgresql://u:1 2/3@4@h/db failed", "connect postgresql://…@h/db failed"),
        ("connect redis://:p w@h failed", "connect redis://…@h failed"),
        ("ssn 123-45-6789 bad", "ssn … bad"),
        ("ssn 123456789 bad", "ssn … bad"),
        ("call +49 170 1234567 or (555) 123-4567 or 555-123-4567", "call … or … or …"),
        ("iban DE89 3704 0044 0532 0130 00 refused", "iban … refused"),
        ("account GB29NWBK60161331926819 refused", "account … refused"),
    ],
)
def test_what_looks_like_a_secret_or_a_person_is_cut(said: str, told: str) -> None:
    """By its form, or by the word before it; of an error and of a line of somebody else."""
    assert sentence(BrokerError("UNKNOWN", said)) == f"BrokerError: UNKNOWN: {told}"
    assert redacted(said) == told


@pytest.mark.parametrize(
    "said",
    [
        "token expired",
        "the token is expired",
        "The token has expired or was revoked at 2024-01-31 12:00:00+00:00",
        "credentials are missing",
        "the password is wrong",
        "the signature is not valid",
        "no password supplied",
        "password authentication failed for user app",
        "invalid_grant: Token must be a short-lived token (60 minutes) and in a reasonable timeframe",
        "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other one.",
        "Your default credentials were not found. To set up Application Default Credentials, see the documentation",
        "User not authorized to perform this: relay@project-1.iam.gserviceaccount.com lacks pubsub.topics.publish",
        "The value for message_count is too large. You passed 1001 in the request, but the maximum value is 1000.",
        "Invalid value at messages, attribute value exceeds 1024 bytes",
        "a key value is required",
        "The maximum value of size is 10",
        "Invalid Avro data: value of wrong type at field x",
        "API key not valid. Please pass a valid API key.",
        "Resource not found (resource=orders-2024-01-31-1).",
        "topic projects/p-1/topics/555-123-4567 is away since 2024-01-31",
        "failed to connect to all addresses; last error: UNAVAILABLE: ipv4:127.0.0.1:8085: Connection refused",
        "https://pubsub.googleapis.com:443 refused the account relay@p.iam.gserviceaccount.com",
        "row 550e8400-e29b-41d4-a716-446655440000 took 1 000 ms",
        "the message is not a valid request: topic is not a string",
    ],
)
def test_a_useful_sentence_stays_whole(said: str) -> None:
    """What Google, Postgres and their drivers say of the request, and not of its data."""
    assert sentence(BrokerError("UNKNOWN", said)) == f"BrokerError: UNKNOWN: {said}"
    assert redacted(said) == said


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://app:{MARK}@db:5432/app is away",
        f"postgresql://app:p@{MARK}/x@db:5432/app is away",
        f"host=db password={MARK} user=app",
        f"host=db password='a {MARK}' user=app",
        f"RELAY_HTTP_TOKEN={MARK}",
        f"GET https://api.example/x?signature={MARK} failed",
        f"Authorization: Bearer {MARK}",
        f"authorization: basic {MARK}==",
        f"sent bearer {MARK}",
        f"x-service-token: {MARK}",
        f"client_secret => {MARK}",
        f"-----BEGIN PRIVATE KEY-----{MARK}\\n{MARK}",
        f"-----BEGIN RSA PRIVATE KEY-----{MARK}-----END RSA PRIVATE KEY-----",
        f"token eyJhbGciOi.{MARK}.{MARK}",
        f"ya29.{MARK}",
    ],
)
def test_no_secret_is_told(text: str) -> None:
    """Not by an error, and not by a line of somebody else."""
    assert MARK not in sentence(RuntimeError(text))
    assert MARK not in sentence(BrokerError("UNKNOWN", text))
    assert MARK not in redacted(text)


def test_a_card_number_is_not_told() -> None:
    """It is known by its check digit; a number that only looks like one is told."""
    assert sentence(ValueError("card 4111 1111 1111 1111 refused")) == "ValueError: card … refused"
    assert sentence(ValueError("4111111111111112 rows")) == "ValueError: 4111111111111112 rows"


@pytest.mark.parametrize(
    ("error", "text", "name"),
    [
        (
            _ServerError("23505", _Diag('duplicate key value violates unique constraint "outbox_events_event_id_key"')),
            '_ServerError: 23505: duplicate key value violates unique constraint "outbox_events_event_id_key"',
            "23505",
        ),
        (
            psycopg.OperationalError('connection to server at "127.0.0.1", port 1 failed: Connection refused\n\tX'),
            'OperationalError: connection to server at "127.0.0.1", port 1 failed: Connection refused',
            "OperationalError",
        ),
        (
            _caught(lambda: _Order.model_validate({"card": "x"})),
            "ValidationError: card (int_parsing)",
            "ValidationError",
        ),
        (
            BrokerError("NOT_FOUND", "Resource not found (resource=orders)."),
            "BrokerError: NOT_FOUND: Resource not found (resource=orders).",
            "NOT_FOUND",
        ),
        (
            SchemaError("database 'app' has no outbox in schema 'public'; create it with: python -m relay migrate"),
            "SchemaError: database 'app' has no outbox in schema 'public'; create it with: python -m relay migrate",
            "SchemaError",
        ),
    ],
)
def test_what_an_operator_needs_is_told(error: BaseException, text: str, name: str) -> None:
    """Names of constraints, hosts, topics and fields, and what the service says; no caution takes them away."""
    assert sentence(error) == text
    assert code(error) == name


@pytest.mark.parametrize(
    "said",
    [
        "public.pk has no column 'seen', named as age; did you mean 'seen_at'?",
        "table 'pk': '2 fortnights' is not a duration; write it like 500ms, 30s, 15m, 720h or 30d",
        "to is 'attic'; write nowhere or archive",
        "there is no table public.nokid (named 'nokid')",
        "archive.sources has no rows of s2.sources, but those of 'public.sources'",
        "nothing here knows of an archive: export from a job that `relay` or `consumers` runs",
    ],
)
@pytest.mark.parametrize("kind", [ConfigurationError, SchemaError, MoveError, ArchiveError])
def test_what_somebody_has_written_wrongly_is_shown(kind: type[Exception], said: str) -> None:
    """Literals of code and settings, in errors about these, are what one has to correct."""
    assert sentence(kind(said)) == f"{kind.__name__}: {said}"


def test_of_several_faults_of_a_configuration_each_is_told() -> None:
    """On one line, and no secret among them."""
    told = sentence(ConfigurationError("A is 'x'\nB is postgres://me:hunter2@db/app"))
    assert told == "ConfigurationError: A is 'x'; B is postgres://…@db/app"


class _HostileError(Exception):
    """An error that fails when it is asked."""

    def __str__(self) -> str:
        raise RuntimeError(MARK)

    @property
    def code(self) -> str:
        raise RuntimeError(MARK)


def test_an_error_that_cannot_be_asked_is_told_by_its_kind() -> None:
    """A log line about an error must not become another one."""
    assert sentence(_HostileError()) == "_HostileError"
    assert code(_HostileError()) == "_HostileError"
    assert trace(_HostileError()) == "_HostileError"


@given(st.text())
def test_what_is_told_can_be_stored(text: str) -> None:
    """Postgres takes neither NUL nor a lone surrogate; a terminal should get no control character."""
    line = sentence(ValueError("a\0\ud800\x1b[31m" + text))

    assert len(line) <= 1_024
    assert line.encode()
    assert line.isprintable() or not any(ord(character) < 32 for character in line)
