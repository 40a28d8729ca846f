"""Outbox tables of other makes, with rows in them, and the words by which they are taken over."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

import psycopg

from relay.adopt import mapping, session, takeover
from relay.adopt.comparison import Comparison, compare
from relay.adopt.moving import Moved
from relay.adopt.session import Session
from relay.postgres.connect import connect
from tests.support.looking import asked
from tests.support.looking import session as looking

HOME_MADE = """
create schema shop;
create table shop.events (
    id         bigint generated always as identity primary key,
    uuid       uuid not null default gen_random_uuid(),
    kind       text,
    order_id   bigint not null,
    payload    jsonb,
    headers    jsonb,
    created_at timestamptz not null default clock_timestamp(),
    sent_at    timestamptz
);
"""
FIELDS: Mapping[str, str] = {
    "event_id": "uuid",
    "event_type": "kind",
    "aggregate_type": "'order'",
    "aggregate_id": "order_id",
    "ordering_key": "'order-' || order_id",
    "data": "payload",
    "attributes": "headers",
    "occurred_at": "created_at",
}
PENDING = "sent_at is null"
MARK = "sent_at = now()"
FILL = """
insert into shop.events (kind, order_id, payload, headers, sent_at)
select 'order.paid', n % 7, jsonb_build_object('n', n), case when n % 2 = 0 then '{"tenant": "acme"}'::jsonb end,
       case when n <= %(sent)s then now() end
  from generate_series(1, %(rows)s) as n
"""


def words(**changes: Any) -> mapping.Mapping:
    """The mapping of the home-made table; `fields` replaces single ones, and None leaves one out."""
    given: dict[str, Any] = {"table": "shop.events", "ids": ["id"], "pending": PENDING, "marks": [MARK], **changes}
    fields = {**FIELDS, **given.pop("fields", {})}
    maps = [f"{name}={expression}" for name, expression in fields.items() if expression is not None]
    return mapping.mapping(**given, maps=maps)


def options(fields: Mapping[str, str] = FIELDS, table: str = "shop.events") -> list[str]:
    """The same for the command line."""
    mapped = [word for name, expression in fields.items() for word in ("--map", f"{name}={expression}")]
    return ["adopt", "--table", table, "--id", "id", "--pending", PENDING, "--mark", MARK, *mapped]


def home_made(url: str, rows: int = 0, sent: int = 0) -> None:
    """Make the home-made table, with so many rows, of which the first so many are sent."""
    run(url, HOME_MADE)
    if rows:
        looking(url).execute(FILL.replace("% ", "%% "), {"rows": rows, "sent": sent})


def run(url: str, statements: str) -> None:
    """Run statements of a test in one transaction."""
    looking(url).execute(statements.encode())  # several statements in one message are one transaction


def rows_of(url: str, query: str) -> Sequence[tuple[Any, ...]]:
    """What a test asks of the database."""
    return asked(url, query.encode())


def nothing(_: str, __: int) -> None:
    """A progress that nobody reads."""


def shadow(url: str, read: mapping.Mapping | None = None, sent: int = 1_000) -> Comparison:
    """Compare, as the command does."""
    with closing(connect(url)) as connection:
        connection.read_only = True
        return compare(session.opened(connection, "public", read or words()), nothing, sent)


def opened(connection: psycopg.Connection[Any], read: mapping.Mapping | None = None) -> Session:
    """A session on a connection of the test's."""
    return session.opened(connection, "public", read or words())


def adopted(url: str, read: mapping.Mapping | None = None, **terms: Any) -> Moved:
    """Take over, without the comparison."""
    with closing(connect(url)) as connection:
        return takeover.take_over(opened(connection, read), takeover.Terms(**terms), nothing)


def released(url: str, table: str = "shop.events") -> bool:
    """Give back."""
    with closing(connect(url)) as connection:
        return takeover.release(connection, "public", table, takeover.Terms())
