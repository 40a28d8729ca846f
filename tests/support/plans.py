"""What Postgres did to answer a statement, asked of itself."""

import json
import re
from collections.abc import Iterator
from itertools import count
from typing import Any

import psycopg
from psycopg import ClientCursor

from relay.outbox.statements import statement

_PARAMETER = re.compile(rb"%\((\w+)\)s")
_numbers = count(1)


def explain(connection: psycopg.Connection[Any], name: str, values: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a statement; answer with the nodes of its plan that touched the table of events."""
    return [
        node
        for node in scans(connection, name, values)
        if node.get("Relation Name") == "outbox_events" and node["Actual Loops"]
    ]


def scans(connection: psycopg.Connection[Any], name: str, values: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a statement as a relay does, prepared; answer with the nodes of its plan that look at any table.

    Those that the execution did not come to are among them.
    """
    text = statement(name)
    names = list(dict.fromkeys(_PARAMETER.findall(text)))
    numbered = _PARAMETER.sub(lambda found: b"$%d" % (names.index(found[1]) + 1), text).replace(b"%%", b"%")
    prepared = f"plan_{next(_numbers)}"
    cursor = ClientCursor(connection)
    cursor.execute(f"prepare {prepared} as ".encode() + numbered)
    listed = ", ".join(["%s"] * len(names))
    asked = f"explain (analyze, buffers, format json, timing off) execute {prepared}"
    values_in_order = [values[each.decode()] for each in names]
    row = cursor.execute(f"{asked} ({listed})" if names else asked, values_in_order).fetchone()
    assert row
    plan = row[0] if isinstance(row[0], list) else json.loads(row[0])
    return [node for node in _nodes(plan[0]["Plan"]) if node["Node Type"].endswith("Scan") and "Relation Name" in node]


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from _nodes(child)
