"""What Postgres did to answer a statement, asked of itself."""

import json
from collections.abc import Iterator
from typing import Any

import psycopg

from relay.outbox.statements import statement


def explain(connection: psycopg.Connection[Any], name: str, values: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a statement; answer with the nodes of its plan that touched the table of events."""
    return [
        node
        for node in scans(connection, name, values)
        if node.get("Relation Name") == "outbox_events" and node["Actual Loops"]
    ]


def scans(connection: psycopg.Connection[Any], name: str, values: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a statement; answer with the nodes of its plan that look at any table, whether they came to it or not."""
    cursor = connection.execute(b"explain (analyze, buffers, format json, timing off) " + statement(name), values)
    row = cursor.fetchone()
    assert row
    plan = row[0] if isinstance(row[0], list) else json.loads(row[0])
    return [node for node in _nodes(plan[0]["Plan"]) if node["Node Type"].endswith("Scan") and "Relation Name" in node]


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from _nodes(child)
