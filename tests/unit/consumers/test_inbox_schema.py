"""The inbox's ladder, and the address of what it stands in."""

import re
import sys

import pytest

from consumers.errors import ConfigurationError
from consumers.inbox.address import checked
from consumers.inbox.schema import INBOX
from relay.outbox.ladder import OUTBOX
from relay.postgres.ladder import UPKEEP_TABLES

SECRET = "hunter2"  # noqa: S105 -- made up, to be looked for in what is said


def test_its_tables_are_those_that_its_steps_make() -> None:
    """What is left out, another tool would take for its own."""
    made = {name for each in INBOX.migrations() for name in re.findall(r"^ *create table (\w+)", each.up, re.MULTILINE)}
    assert INBOX.tables == made | {INBOX.record}


def test_it_shares_with_the_outbox_what_both_make() -> None:
    """They may stand in one schema of one database, and be migrated side by side."""
    assert INBOX.tables & OUTBOX.tables == UPKEEP_TABLES
    made = [each.up for ladder in (OUTBOX, INBOX) for each in ladder.migrations() if each.name == "upkeep"]
    ours, theirs = (re.sub(r"\n-- Each row is written twice.*?;\n|\s", "", up, flags=re.DOTALL) for up in made)
    assert ours == theirs
    assert INBOX.lock != OUTBOX.lock
    assert all(0 <= part < 2**31 for part in INBOX.lock)


@pytest.mark.parametrize("url", ["postgresql://u:p@h:5432/db?sslmode=require", "postgres://h", "host=h dbname=db"])
def test_what_libpq_reads_is_an_address(url: str) -> None:
    """Without what was written around it."""
    assert checked(f" {url}\n") == url


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        (f"postgresql+asyncpg://u:{SECRET}@h/db", "DATABASE_URL names a driver in its scheme; write postgresql://"),
        (f"'postgresql://u:{SECRET}@h/db'", "DATABASE_URL begins with a quote; remove the quotes around it"),
        (f"mysql://u:{SECRET}@h/db", "DATABASE_URL is not a connection string; write it like postgresql://"),
    ],
)
def test_an_address_of_another_kind_is_refused(url: str, sentence: str) -> None:
    """Without a word of what it holds."""
    with pytest.raises(ConfigurationError) as refusal:
        checked(url)
    assert str(refusal.value).startswith(sentence)
    assert SECRET not in str(refusal.value)


def test_without_libpq_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Consumers without an inbox do without it."""
    monkeypatch.setitem(sys.modules, "relay.postgres.connect", None)
    with pytest.raises(ConfigurationError, match=r"cannot be loaded here: .*; run: pip install 'psycopg\[binary\]'"):
        checked("postgresql://h")
