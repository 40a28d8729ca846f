"""What is read of an error, from whichever library it comes."""

import asyncpg
import psycopg
import pytest
import sqlalchemy as sa
from django.db import OperationalError

from relay.adapters.fault import Fault, fault_of, is_unencodable


def caused(error: Exception, cause: Exception) -> Exception:
    """An error that was raised from another."""
    error.__cause__ = cause
    return error


def told() -> Exception:
    """An error as asyncpg makes it of an answer."""
    error: Exception = asyncpg.InvalidParameterValueError("outbox_emit: event 0 has no data")
    error.message = str(error)  # type: ignore[attr-defined]  # which asyncpg reads from the wire
    return error


FAULT = Fault("22023", "outbox_emit: event 0 has no data")


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (told(), FAULT),
        (caused(OperationalError("Django's words"), told()), FAULT),
        (caused(sa.exc.DBAPIError("select", {}, told()), caused(ValueError(), told())), FAULT),
        (psycopg.OperationalError("the connection is lost"), None),
        (caused(psycopg.errors.InvalidParameterValue("no server said so"), ValueError()), None),
        (asyncpg.InterfaceError("the connection is closed"), None),
        (ValueError("22023"), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_database_is_found_behind_the_library(error: Exception, fault: Fault | None) -> None:
    """And nothing is taken for it that is not from there."""
    assert fault_of(error) == fault


def test_an_error_that_is_its_own_cause_has_an_end() -> None:
    """`raise error from error` is possible."""
    error = ValueError()
    other = caused(KeyError(), caused(error, caused(LookupError(), error)))
    error.__cause__ = error
    assert fault_of(error) is fault_of(other) is None
    assert not is_unencodable(other)


def test_a_text_that_has_no_words_is_found_behind_the_library() -> None:
    """The driver wraps it, and SQLAlchemy does so once more."""
    unencodable = UnicodeEncodeError("latin-1", "€", 0, 1, "ordinal not in range")
    assert is_unencodable(caused(KeyError(), caused(ValueError(), unencodable)))
    assert not is_unencodable(ValueError())
