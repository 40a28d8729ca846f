"""Emitting with a registry: what it refuses leaves nothing, and costs the transaction nothing."""

import re
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from pydantic import BaseModel

from relay import Event, InvalidEventError, Registry, Rule, emit, emit_async
from tests.support.commands import ROOT
from tests.support.outbox import count, event


class OrderPaid(BaseModel):
    """What the events of these tests hold."""

    number: int


REGISTRY = Registry({"order.paid": Rule("order", {1: OrderPaid})})
REFUSED = {
    "type": {"event_type": "order.payed"},
    "aggregate": {"aggregate_type": "customer"},
    "version": {"version": 2},
    "data": {"data": {"number": "hunter2"}},
}


def several(wrong: dict[str, Any]) -> list[Event]:
    """A good event, and one that is not."""
    return [event(1), event(2, **wrong)]


@pytest.mark.parametrize("wrong", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("events", [several, lambda wrong: event(**wrong)], ids=["many", "one"])
def test_a_mismatch_stores_nothing_of_the_call(
    database: str, wrong: dict[str, Any], events: Callable[[dict[str, Any]], Any]
) -> None:
    """What the transaction did before and does after it is kept."""
    with psycopg.connect(database) as connection:
        emit(connection, event(7), registry=REGISTRY)
        with pytest.raises(InvalidEventError) as refused:
            emit(connection, events(wrong), registry=REGISTRY)
        emit(connection, [event(8), event(9)], registry=REGISTRY)

    assert "hunter2" not in str(refused.value)
    assert count(database) == count(database, "aggregate_id in ('7', '8', '9')") == 3


@pytest.mark.parametrize("wrong", REFUSED.values(), ids=REFUSED)
async def test_the_asynchronous_face_refuses_the_same(database: str, wrong: dict[str, Any]) -> None:
    """One event or many."""
    async with await psycopg.AsyncConnection.connect(database) as connection:
        for events in (several(wrong), event(**wrong)):
            with pytest.raises(InvalidEventError):
                await emit_async(connection, events, registry=REGISTRY)
        await emit_async(connection, event(7), registry=REGISTRY)
    assert count(database) == 1


def test_data_is_stored_as_it_was_given(database: str) -> None:
    """Checked, and neither coerced nor stripped of what the model does not know."""
    with psycopg.connect(database) as connection:
        emit(
            connection, [event(data={"number": "7", "more": None}), event(data=OrderPaid(number=8))], registry=REGISTRY
        )
    assert count(database, 'payload -> \'data\' = \'{"number": "7", "more": null}\'') == 1
    assert count(database, "payload -> 'data' = '{\"number\": 8}'") == 1


def test_the_snippet_of_the_documentation_runs(
    database: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And prints what its comment says."""
    (snippet,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/routing.md").read_text(), re.MULTILINE | re.DOTALL)
    (expected,) = re.findall(r"print\(error\)  # (.*)", snippet)
    monkeypatch.setenv("DATABASE_URL", database)
    exec(snippet, {"__name__": "snippet"})  # noqa: S102 -- this is what the test is for

    assert capsys.readouterr().out == f"{expected}\n"
    assert count(database) == 2
    assert count(database, 'payload -> \'data\' = \'{"amount": "19.99", "currency": "EUR"}\'') == 1
