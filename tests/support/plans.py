"""What Postgres did to answer a statement, asked of itself."""

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, NamedTuple

import psycopg
from psycopg import ClientCursor

from relay.outbox.statements import statement
from relay.postgres.statements import Statements

# All that a glance may be asked for.
GLANCE: dict[str, Any] = {"newest": True, "keys": True, "due": True, "ordered_safe": 0, "skew": 0.0}

_PARAMETER = re.compile(rb"%\((\w+)\)s")
_numbers = count(1)


class Prepared(NamedTuple):
    """A statement on the server, and the names of its parameters in their order."""

    name: str
    parameters: list[str]


def explain(connection: psycopg.Connection[Any], name: str, values: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a statement; answer with the nodes of its plan that touched the table of events."""
    return touching(scans(connection, name, values))


def scans(connection: psycopg.Connection[Any], name: str, values: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a statement as a relay does, prepared; answer with the nodes of its plan that look at any table.

    Those that the execution did not come to are among them.
    """
    return scans_of(connection, prepare(connection, name), values)


def prepare(connection: psycopg.Connection[Any], name: str, statements: Statements = statement) -> Prepared:
    """Prepare a statement; what it is planned for is the table as it is when it first runs."""
    text = statements(name)
    names = list(dict.fromkeys(_PARAMETER.findall(text)))
    numbered = _PARAMETER.sub(lambda found: b"$%d" % (names.index(found[1]) + 1), text).replace(b"%%", b"%")
    prepared = Prepared(f"plan_{next(_numbers)}", [each.decode() for each in names])
    ClientCursor(connection).execute(f"prepare {prepared.name} as ".encode() + numbered)
    return prepared


def run(connection: psycopg.Connection[Any], prepared: Prepared, values: dict[str, Any], asked: str = "") -> Any:
    """Execute it; answer with the first row."""
    listed = f"({', '.join(['%s'] * len(prepared.parameters))})" if prepared.parameters else ""
    cursor = ClientCursor(connection)
    cursor.execute(f"{asked} execute {prepared.name}{listed}".encode(), [values[each] for each in prepared.parameters])
    return cursor.fetchone()


def scans_of(connection: psycopg.Connection[Any], prepared: Prepared, values: dict[str, Any]) -> list[dict[str, Any]]:
    """The same of a statement that is prepared."""
    return tables(plan_of(connection, prepared, values))


def plan_of(connection: psycopg.Connection[Any], prepared: Prepared, values: dict[str, Any]) -> dict[str, Any]:
    """Run a statement that is prepared; answer with the root of its plan."""
    row = run(connection, prepared, values, "explain (analyze, buffers, format json, timing off)")
    plan = row[0] if isinstance(row[0], list) else json.loads(row[0])
    root: dict[str, Any] = plan[0]["Plan"]
    return root


def tables(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """Its nodes that look at any table."""
    return [node for node in nodes(plan) if node["Node Type"].endswith("Scan") and "Relation Name" in node]


def touching(nodes: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of them that touched the table of events."""
    return [node for node in nodes if node.get("Relation Name") == "outbox_events" and node["Actual Loops"]]


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A plan's root and everything below it."""
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)


_SIZES = "select oid, relpages, reltuples, relallvisible from pg_class where oid >= 16384"
_AS_BEFORE = """
update pg_class as c
   set relpages = before.relpages, reltuples = before.reltuples, relallvisible = before.relallvisible
  from unnest(%s::oid[], %s::integer[], %s::real[], %s::integer[]) as before (oid, relpages, reltuples, relallvisible)
 where c.oid = before.oid
   and (c.relpages, c.reltuples, c.relallvisible)
       is distinct from (before.relpages, before.reltuples, before.relallvisible)
"""


@contextmanager
def analysed_for_now(url: str) -> Iterator[None]:
    """Undo at the end of the block what an ANALYZE leaves in pg_class even where it is rolled back: its sizes."""
    with psycopg.connect(url, autocommit=True) as owner:
        before = owner.execute(_SIZES).fetchall()
        try:
            yield
        finally:
            owner.execute(_AS_BEFORE, list(map(list, zip(*before, strict=True))))
