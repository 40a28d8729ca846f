"""The arithmetic of waits, and what a client is told."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from consumers.clock import SystemClock
from consumers.errors import ConfigurationError, UnknownDeliveryError
from consumers.inbox.rows import Awaited
from consumers.settings import load
from consumers.waiting import (
    Enqueued,
    Failed,
    Pending,
    Ready,
    Refusal,
    Waiting,
    reply_to,
    wait_endpoint,
    wait_response,
)
from consumers.waiting.waiter import Waiter, seconds_of, target_of
from consumers.waiting.wake_up import WakeUp
from consumers.waiting.web import wait_of
from idempotency import StoreUnavailableError
from tests.support.commands import ROOT

EVENT = UUID("696c2c91-7a97-5db5-b791-8ea1a96f1dac")
NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"


def found(state: str, outcome: str = "", **values: Any) -> Awaited:
    """A row that a look has found."""
    standard: dict[str, Any] = {"id": 1, "result": None, "error_code": "", "error": "", "due_in": 0.0}
    return Awaited(**{**standard, "state": state, "outcome": outcome, **values})


class TestLooks:
    """When somebody is looked for, and what is made of what is found."""

    def test_they_become_rarer_up_to_one_a_second(self) -> None:
        """From 20 ms on, doubling."""
        waiter = Waiter(1, due=0.0, retry_after=1.0)
        waits = []
        for _ in range(9):
            now = waiter.due
            waiter.look_later(now)
            waits.append(waiter.due - now)
        assert waiter.every == 1.0
        assert all(0 < wait <= 1.0 for wait in waits)
        assert waits[0] == 0.02
        assert waits[-1] == 1.0

    def test_all_that_wait_for_long_are_looked_for_at_once(self) -> None:
        """Whenever each of them came: then they go in one statement."""
        waiters = [Waiter(number, due=number * 0.0137, retry_after=1.0) for number in range(200)]
        for waiter in waiters:
            while waiter.due < 10:
                waiter.look_later(waiter.due)
        assert {waiter.due for waiter in waiters} == {10.0}

    @pytest.mark.parametrize(
        ("row", "answer"),
        [
            (found("pending"), Pending(1.0)),
            (found("pending", due_in=-20.0), Pending(1.0)),
            (found("pending", due_in=7.5), Pending(7.5)),
            (found("pending", due_in=86_400.0), Pending(30.0)),
            (found("processing"), Pending(1.0)),
            (found("sent"), Pending(1.0)),
            (found("done", "ok", result=[1]), Ready([1])),
            (found("done", "skipped", error="was there"), Ready(None)),
            (found("done", "discarded"), Failed("DISCARDED", "")),
            (found("failed", "dead", error_code="CARD", error="card 4711"), Failed("CARD", "card 4711")),
            (found("failed", "invalid"), Failed("INVALID", "")),
        ],
    )
    def test_every_state_has_its_answer(self, row: Awaited, answer: Any) -> None:
        """What came to another end than a good one is no result."""
        waiter = Waiter(1, due=0.0, retry_after=1.0)
        waiter.see(row, 1.0)
        assert waiter.said() == answer
        assert waiter.looked.is_set()
        assert waiter.ended.is_set() == (not isinstance(answer, Pending))

    def test_an_event_may_be_on_its_way_and_a_delivery_may_not(self) -> None:
        """Its id was given when it was stored."""
        waiter = Waiter(("invoices", EVENT), due=0.0, retry_after=1.0)
        waiter.see(None, 1.0)
        assert waiter.said() == Pending(1.0)
        waiter = Waiter(7, due=0.0, retry_after=1.0)
        waiter.see(None, 1.0)
        with pytest.raises(UnknownDeliveryError, match="no delivery 7"):
            waiter.said()

    def test_a_look_that_failed_is_an_answer_only_where_there_was_no_other(self) -> None:
        """What was pending a moment ago is so still."""
        waiter = Waiter(1, due=0.0, retry_after=1.0)
        with pytest.raises(StoreUnavailableError, match="has not answered in time"):
            waiter.said()
        waiter.fail(StoreUnavailableError("away"))
        with pytest.raises(StoreUnavailableError, match="away"):
            waiter.said()
        waiter.see(found("pending"), 1.0)
        waiter.fail(StoreUnavailableError("away"))
        assert waiter.said() == Pending(1.0)


class TestNames:
    """What is waited for, and for how long."""

    def test_a_delivery_has_several_names(self) -> None:
        """What enqueue has answered, its id, or its consumer and event."""
        assert target_of(Enqueued(7, EVENT, inserted=True)) == 7
        assert target_of(7) == 7
        assert target_of(("invoices", str(EVENT))) == target_of(("invoices", EVENT)) == ("invoices", EVENT)

    @pytest.mark.parametrize(
        "given", [0, -1, 2**63, ("", EVENT), ("a\0b", EVENT), ("a" * 256, EVENT), ("\ud800", EVENT), ("a", "42")]
    )
    def test_what_names_none_is_refused(self, given: Any) -> None:
        """It would make a statement fail that is others' as well."""
        with pytest.raises(ValueError, match=r"is no id|is no name|is not a UUID"):
            target_of(given)

    @pytest.mark.parametrize("given", [None, True, "7", 7.0, ("a",), (7, EVENT), EVENT])
    def test_what_is_no_name_is_refused(self, given: Any) -> None:
        """With what to give."""
        with pytest.raises(TypeError, match="expected what enqueue answers, an id, or"):
            target_of(given)

    @pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), True, "1", None])
    def test_a_time_is_zero_or_more(self, seconds: Any) -> None:
        """And comes to an end."""
        with pytest.raises(ValueError, match=r"seconds is .*; give zero or more"):
            seconds_of(seconds)


class TestSettings:
    """How a process waits."""

    @pytest.fixture(autouse=True)
    def _nothing_set(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        for name in ("DATABASE_URL", "INBOX_WAIT_MS", "INBOX_WAIT_MOST_MS"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.chdir(tmp_path)

    def test_they_are_those_of_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """15 s and 30 s, unless it says otherwise."""
        monkeypatch.setenv("DATABASE_URL", NOWHERE)
        waiting = Waiting.of(load())
        assert (waiting.default, waiting.most) == (15.0, 30.0)
        monkeypatch.setenv("INBOX_WAIT_MS", "2500")
        monkeypatch.setenv("INBOX_WAIT_MOST_MS", "25s")
        waiting = Waiting.of(load())
        assert (waiting.default, waiting.most) == (2.5, 25.0)

    def test_more_than_the_most_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """In the environment and in code."""
        monkeypatch.setenv("INBOX_WAIT_MS", "31s")
        with pytest.raises(ConfigurationError, match="INBOX_WAIT_MS is 31s, more than INBOX_WAIT_MOST_MS, which is 30"):
            load()
        with pytest.raises(ConfigurationError, match=r"wait is '31s', longer than most, 30.0; give"):
            Waiting(NOWHERE, wait="31s")

    def test_without_a_database_there_is_nothing_to_wait_for(self) -> None:
        """And what is no address is refused before anybody waits."""
        with pytest.raises(ConfigurationError, match="DATABASE_URL is not set"):
            Waiting.of(load())
        with pytest.raises(ConfigurationError, match="names a driver in its scheme"):
            Waiting("postgresql+asyncpg://localhost")
        with pytest.raises(ConfigurationError, match="retry_after: 'soon' is not a duration"):
            Waiting(NOWHERE, retry_after="soon")


class TestReplies:
    """What a client is told."""

    @pytest.mark.parametrize(
        ("text", "seconds"),
        [(None, 15.0), ("0", 0.0), ("1", 0.001), ("2500", 2.5), ("30000", 30.0), ("30001", 30.0), ("9" * 18, 30.0)],
    )
    def test_a_client_waits_as_long_as_it_wants_to_and_may(self, text: str | None, seconds: float) -> None:
        """In milliseconds."""
        assert wait_of(text, Waiting(NOWHERE)) == seconds

    @pytest.mark.parametrize("text", ["", " 5", "-1", "+1", "1.5", "1e3", "5s", "NaN", "٣", "9" * 19, "x" * 5000])
    def test_what_is_no_wait_is_refused_with_a_sentence(self, text: str) -> None:
        """That says what to give, and repeats no more than its beginning."""
        with pytest.raises(
            ValueError, match=r"^waitMs is '.*'; give a whole number of milliseconds, from 0 to 30000$"
        ) as e:
            wait_of(text, Waiting(NOWHERE))
        assert len(str(e.value)) < 130

    def test_what_is_ready_has_its_result_or_what_is_made_of_it(self) -> None:
        """Whatever pydantic writes as JSON."""
        reply = reply_to(Ready({"number": 42}))
        assert (reply.status, json.loads(reply.encoded())) == (200, {"status": "ready", "result": {"number": 42}})
        assert reply.headers == {"cache-control": "no-store"}
        shown = reply_to(Ready({"number": 42}), ready=lambda result: {"id": EVENT, "part": float("nan"), **result})
        assert json.loads(shown.encoded()) == {"id": str(EVENT), "part": None, "number": 42}
        assert reply_to(Ready(None), ready=lambda result: result).encoded() == b"null"

    @pytest.mark.parametrize(
        ("retry_after", "header", "milliseconds"),
        [(1.0, "1", 1000), (0.25, "1", 250), (0.0, "1", 0), (1.2, "2", 1200), (30.0, "30", 30_000)],
    )
    def test_what_is_pending_says_when_to_come_again(self, retry_after: float, header: str, milliseconds: int) -> None:
        """The header in whole seconds, the body to the millisecond."""
        reply = reply_to(Pending(retry_after))
        assert (reply.status, reply.headers["retry-after"]) == (202, header)
        assert reply.body == {"status": "pending", "retryAfterMs": milliseconds}

    @pytest.mark.parametrize(
        ("failures", "body"),
        [
            (None, {"code": "FAILED"}),
            ({}, {"code": "FAILED"}),
            ({"OTHER": "X"}, {"code": "FAILED"}),
            ({"CARD": "CARD_REFUSED"}, {"code": "CARD_REFUSED"}),
            ({"CARD": Refusal("NO", "Take another card.")}, {"code": "NO", "message": "Take another card."}),
            (lambda _: None, {"code": "FAILED"}),
            (lambda failed: f"MY_{failed.code}", {"code": "MY_CARD"}),
            (lambda failed: Refusal("NO", failed.reason), {"code": "NO", "message": "card 4711"}),
        ],
    )
    def test_what_failed_has_a_code_of_the_resources_own(self, failures: Any, body: dict[str, str]) -> None:
        """The consumer's words are told only by a function that hands them on."""
        reply = reply_to(Failed("CARD", "card 4711"), failures=failures)
        assert (reply.status, reply.body) == (422, {"status": "failed", **body})


class Asked:
    """A request, as far as it is asked for anything."""

    def __init__(self, *messages: Any, **query: str) -> None:
        self.query_params = query
        self._messages = list(messages)

    async def receive(self) -> Any:
        """The next message; none any more: nothing happens."""
        if not self._messages:
            await asyncio.Event().wait()
        message = self._messages.pop(0)
        if isinstance(message, Exception):
            raise message
        return {"type": message, "more_body": bool(self._messages)}


class Slow:
    """Waits until it is told."""

    default, most, retry_after = 15.0, 30.0, 1.0

    def __init__(self) -> None:
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.seconds = -1.0

    async def wait(self, _: object, seconds: float) -> Any:
        """What it was told."""
        self.seconds = seconds
        return await self.answer


async def test_a_request_of_which_nothing_can_be_heard_is_waited_for_all_the_same() -> None:
    """Its client may be there still."""
    waiting: Any = Slow()
    answering = asyncio.create_task(wait_response(waiting, Asked(RuntimeError("no stream"), waitMs="70"), 1))
    for _ in range(10):
        await asyncio.sleep(0)
    waiting.answer.set_result(Ready(1))
    assert (await answering).status_code == 200
    assert waiting.seconds == 0.07


async def test_a_server_that_goes_on_about_the_body_is_not_listened_to() -> None:
    """It would keep the event loop to itself."""

    class Endless(Asked):
        async def receive(self) -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

    waiting: Any = Slow()
    answering = asyncio.create_task(wait_response(waiting, Endless(), 1))
    for _ in range(10):
        await asyncio.sleep(0)
    waiting.answer.set_result(Ready(1))
    assert (await answering).status_code == 200


async def test_for_a_client_that_is_gone_nobody_waits() -> None:
    """What is left of its body is passed over."""
    waiting: Any = Slow()
    response = await wait_response(waiting, Asked("http.request", "http.disconnect"), 1)
    assert (response.status_code, response.body) == (499, b"")
    assert waiting.answer.cancelled()


async def test_a_framework_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to do without it."""
    monkeypatch.setitem(sys.modules, "starlette.requests", None)

    async def begin(_: Any) -> int:
        return 1

    with pytest.raises(ConfigurationError, match=r"needs Starlette or FastAPI .* make a response of reply_to"):
        wait_endpoint(Waiting(NOWHERE), begin)


async def test_what_is_told_on_the_channel_by_others_is_nothing_to_us() -> None:
    """A payload that is no id, on a session that then ends; it is tried again."""
    heard: list[int | None] = []
    ended = asyncio.Event()

    async def notifies() -> Any:
        for payload in ("7", "", "seven", "8"):
            yield SimpleNamespace(payload=payload)
        ended.set()
        await asyncio.Event().wait()

    class Connection:
        prepare_threshold = 0

        async def __aenter__(self) -> None: ...

        async def __aexit__(self, *_: object) -> None: ...

        async def execute(self, _: object) -> None: ...

        def notifies(self) -> Any:
            return notifies()

    async def connect() -> Any:
        if not heard:
            heard.append(-1)
            raise OSError("away")
        return Connection()

    task = asyncio.create_task(WakeUp(connect, heard.append, SystemClock()).run())
    await ended.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert heard == [-1, None, 7, 8]


@pytest.mark.parametrize("given", ["enqueue", "Waiting, wait_endpoint, wait_response"])
def test_no_web_server_comes_with_it(given: str) -> None:
    """And whoever only enqueues needs no libpq."""
    program = f"""
import sys
from consumers.waiting import {given}
brought = {{"starlette", "fastapi", "anyio", "uvicorn", "google"}} & sys.modules.keys()
print(sorted(brought), "psycopg" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True, cwd=ROOT
    )
    assert done.stdout == f"[] {'Waiting' in given}\n"
