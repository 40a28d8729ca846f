"""What goes back to Pub/Sub: acknowledgements, extensions, and deliveries that are given back, many in one request."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from consumers.events import SettleFailed
from relay.brokers.pubsub_receiving import TRANSIENT
from relay.errors import BrokerError
from relay.kernel.backoff import Backoff, Delay
from relay.kernel.observe import Observe

# A request may take 512 KiB; an ack id takes up to some 250 bytes.
_MOST_IDS: Final = 1_000
_MOST_BYTES: Final = 400_000
_ID_OVERHEAD: Final = 4
_REQUESTS_AT_ONCE: Final = 10
_CALL_SECONDS: Final = 10.0
# For how long a call is tried. Behind that, the messages have come again, or do so soon.
_TRIED_SECONDS: Final = 60.0
# When the process stops it has no minute left to hear of an acknowledgement.
_HURRIED_SECONDS: Final = 5.0
_PAUSE = Delay(first=0.1, most=5.0, jitter=0.1)
# What the service answers the same the next time.
_FINAL: Final = {"NOT_FOUND", "INVALID_ARGUMENT", "PERMISSION_DENIED", "FAILED_PRECONDITION", "UNIMPLEMENTED"}


class Calls(Protocol):
    """The requests that settling takes. Each answers with the reason for every ack id that was refused."""

    async def acknowledge(self, ack_ids: Sequence[str], seconds: float) -> Mapping[str, str]:
        """Have deliveries forgotten."""
        ...

    async def modify(self, ack_ids: Sequence[str], deadline: int, seconds: float) -> Mapping[str, str]:
        """Have deliveries come again in `deadline` seconds, unless they are acknowledged by then."""
        ...


@dataclass(slots=True)
class Said:
    """What became of ack ids that were not simply taken."""

    refused: dict[str, str] = field(default_factory=dict)
    """By an exactly-once subscription, for good: each with the reason."""
    failed: list[str] = field(default_factory=list)
    """Of these nobody knows: the service could not be told."""
    error: BrokerError | None = None
    """Why the last one of them failed."""

    def fail(self, ack_ids: Sequence[str], error: BrokerError) -> None:
        """These could not be said."""
        self.failed += ack_ids
        self.error = error


class Settling:
    """Sends what is to be said about deliveries. Nothing here raises: what cannot be said in time is told of.

    A plain subscription answers nothing that helps: it says yes to every acknowledgement, in time or not. One with
    exactly-once delivery says which ones count, and `confirm` waits for it.

    Acknowledgements are in no hurry: a few milliseconds of `linger` let hundreds share a request.
    """

    def __init__(  # noqa: PLR0913 -- each by its name
        self,
        calls: Calls,
        consumer: str,
        subscription: str,
        observe: Observe,
        *,
        linger: float = 0.01,
        call_seconds: float = _CALL_SECONDS,
        tried_seconds: float = _TRIED_SECONDS,
        hurried_seconds: float = _HURRIED_SECONDS,
        relieved: Callable[[], None] = lambda: None,
    ) -> None:
        """`relieved` hears whenever `unsaid` has shrunk."""
        self._calls = calls
        self._consumer = consumer
        self._subscription = subscription
        self._observe = observe
        self._linger = linger
        self._call_seconds = call_seconds
        self._tried_seconds = tried_seconds
        self._hurried_seconds = hurried_seconds
        self._relieved = relieved
        self._acks: list[str] = []
        self._given_back: dict[int, list[str]] = {}
        self._answers: dict[str, asyncio.Future[bool]] = {}
        self._soon: asyncio.Handle | None = None
        self._sending: set[asyncio.Task[None]] = set()
        self._patience: float | None = None
        self._end_of_patience: asyncio.TimerHandle | None = None
        self._closed = False
        self.unsaid = 0
        """How many ack ids wait to be said, or are being said."""

    def acknowledge(self, ack_id: str) -> None:
        """Have a delivery forgotten, soon."""
        if not self._closed:
            self._acks.append(ack_id)
            self.unsaid += 1
            self._send_soon()

    async def confirm(self, ack_id: str) -> bool:
        """Have a delivery forgotten, and wait for the word that it is; false where it is not, or nobody knows."""
        if self._closed:
            return False
        loop = asyncio.get_running_loop()
        answer = self._answers.get(ack_id)
        if answer is None:
            answer = self._answers[ack_id] = loop.create_future()
            self._acks.append(ack_id)
            self.unsaid += 1
            if self._soon is None and len(self._sending) < _REQUESTS_AT_ONCE:
                # Not at once: whoever asks in this turn of the loop goes along.
                self._soon = loop.call_soon(self._send)
        # Shielded: others may wait for the same word.
        done, _ = await asyncio.wait([answer], timeout=self._patience)
        return bool(done) and answer.result()

    def give_back(self, ack_id: str, seconds: int) -> None:
        """Have a delivery come again after so many seconds, soon."""
        if not self._closed:
            self._given_back.setdefault(seconds, []).append(ack_id)
            self.unsaid += 1
            self._send_soon()

    async def extend(self, ack_ids: Sequence[str], seconds: int, tried_seconds: float = 0.0) -> Said:
        """Hold deliveries for so many seconds from now, or say of which ones that failed."""
        said = Said()
        await asyncio.gather(*(self._try(batch, seconds, tried_seconds, said) for batch in _batches(ack_ids)))
        return said

    def hurry(self) -> None:
        """The process stops: whoever waits for a word waits for a few seconds more."""
        self._patience = self._hurried_seconds
        self._end_of_patience = asyncio.get_running_loop().call_later(self._hurried_seconds, self._answer_all)

    async def flush(self, seconds: float) -> None:
        """Say what is still to be said, in this time, and nothing later."""
        self._closed = True
        self._send()
        try:
            async with asyncio.timeout(seconds):
                while self._sending:
                    # Whatever ends begins the next one.
                    await asyncio.wait(self._sending)
        except TimeoutError:
            pass
        finally:
            self._drop()
            self._answer_all()
            if self._end_of_patience is not None:
                self._end_of_patience.cancel()
        if late := list(self._sending):
            await asyncio.wait(late)

    def _drop(self) -> None:
        """Say no more, and tell of what has not been said."""
        error = BrokerError("DEADLINE_EXCEEDED", "the process ended before it was said")
        unsaid, self._acks = self._acks, []
        self._failed("acknowledge", unsaid, error)
        given_back, self._given_back = self._given_back, {}
        self._failed("give_back", [ack_id for ack_ids in given_back.values() for ack_id in ack_ids], error)
        for task in self._sending:
            task.cancel()

    def _send_soon(self) -> None:
        if self._soon is None and len(self._sending) < _REQUESTS_AT_ONCE:
            self._soon = asyncio.get_running_loop().call_later(self._linger, self._send)

    def _send(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        while len(self._sending) < _REQUESTS_AT_ONCE:
            if self._acks:
                batch, self._acks = _first_batch(self._acks)
                self._start("acknowledge", batch, None)
            elif self._given_back:
                seconds = next(iter(self._given_back))
                batch, rest = _first_batch(self._given_back.pop(seconds))
                if rest:
                    self._given_back[seconds] = rest
                self._start("give_back", batch, seconds)
            else:
                return

    def _start(self, operation: str, ack_ids: Sequence[str], seconds: int | None) -> None:
        task = asyncio.ensure_future(self._say(operation, ack_ids, seconds))
        self._sending.add(task)
        task.add_done_callback(self._sent)

    def _sent(self, task: "asyncio.Task[None]") -> None:
        self._sending.discard(task)
        if self._soon is None:
            self._send()

    async def _say(self, operation: str, ack_ids: Sequence[str], seconds: int | None) -> None:
        said = Said()
        try:
            await self._try(ack_ids, seconds, self._tried_seconds, said)
        except asyncio.CancelledError:
            said.fail(ack_ids, BrokerError("DEADLINE_EXCEEDED", "the process ended before it was answered"))
        self.unsaid -= len(ack_ids)
        if said.error is not None:
            self._failed(operation, said.failed, said.error)
        if self._answers and seconds is None:
            self._answer(ack_ids, said)
        self._relieved()

    def _answer(self, ack_ids: Sequence[str], said: Said) -> None:
        vain = said.refused.keys() | set(said.failed)
        for ack_id in ack_ids:
            answer = self._answers.pop(ack_id, None)
            if answer is not None and not answer.done():
                answer.set_result(ack_id not in vain)

    def _answer_all(self) -> None:
        answers, self._answers = self._answers, {}
        for answer in answers.values():
            if not answer.done():
                answer.set_result(False)

    async def _try(self, ack_ids: Sequence[str], seconds: int | None, tried_seconds: float, said: Said) -> None:
        """Call until it works or it is too late."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + tried_seconds
        backoff = Backoff(_PAUSE)
        while ack_ids:
            try:
                answer = await self._call(ack_ids, seconds)
            except BrokerError as error:
                if error.code == "INVALID_ARGUMENT" and len(ack_ids) > 1:
                    # One that the service does not know at all must not take the others along.
                    middle = len(ack_ids) // 2
                    await self._try(ack_ids[:middle], seconds, tried_seconds, said)
                    await self._try(ack_ids[middle:], seconds, tried_seconds, said)
                    return
                failure, final = error, error.code in _FINAL
            else:
                ack_ids = _passing(answer, said)
                failure, final = BrokerError("UNAVAILABLE", next(iter(answer.values()), "")), False
            if ack_ids:
                pause = backoff.next()
                if final or loop.time() + pause > deadline:
                    said.fail(ack_ids, failure)
                    return
                await asyncio.sleep(pause)

    async def _call(self, ack_ids: Sequence[str], seconds: int | None) -> Mapping[str, str]:
        try:
            if seconds is None:
                return await self._calls.acknowledge(ack_ids, self._call_seconds)
            return await self._calls.modify(ack_ids, seconds, self._call_seconds)
        except BrokerError:
            raise
        except Exception as error:  # whatever it is, the next requests must go out, and somebody must be told
            raise BrokerError("FAILED_PRECONDITION", f"{type(error).__name__}: {error}") from error

    def _failed(self, operation: str, ack_ids: Sequence[str], error: BrokerError) -> None:
        if ack_ids:
            self._observe(SettleFailed(self._consumer, self._subscription, operation, len(ack_ids), error))


def _passing(answer: Mapping[str, str], said: Said) -> list[str]:
    """Note those that are refused for good; the others are worth another try."""
    passing = []
    for ack_id, reason in answer.items():
        if reason.startswith(TRANSIENT):
            passing.append(ack_id)
        else:
            said.refused[ack_id] = reason
    return passing


def _batches(ack_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    rest = list(ack_ids)
    while rest:
        batch, rest = _first_batch(rest)
        yield batch


def _first_batch(ack_ids: list[str]) -> tuple[list[str], list[str]]:
    """What goes into one request, and the rest."""
    batch = ack_ids[:_MOST_IDS]
    size = sum(map(len, batch)) + _ID_OVERHEAD * len(batch)
    while size > _MOST_BYTES and len(batch) > 1:
        size -= len(batch.pop()) + _ID_OVERHEAD
    return batch, ack_ids[len(batch) :]
