"""Faults: what the emulator does instead of its work, or around it, until told otherwise.

Set in the process (`emulator.faults.set(...)`) or from another one (`await set_faults(address, ...)`, which calls the
method FAULTS_SET). Several are in force at once; of those that a call meets, the most particular one decides: one for
a message before one for a topic, before one for a method, before one for everything.

    Fault("UNAVAILABLE")                                            everything is refused
    Fault("UNAVAILABLE", method="Publish", topic="orders")          one topic is
    Fault("INTERNAL", attribute="sequence", value="17")             requests with this message in them are
    Fault("OK", method="Publish", delay_ms=200)                     slow: the work is done later
    Fault("OK", method="Publish", delay_ms=200, after=True)         slow: the work is done, the answer comes later
    Fault("UNAVAILABLE", method="Publish", after=True)              the messages are stored, the answer is an error
    Fault("OK", method="Publish", after=True, silent=True)          the messages are stored, the answer never comes
    Fault("OK", silent=True)                                        half-open: calls are taken and never answered
    Fault("ABORTED", method="Publish", times=2)                     the next two calls only
    Fault("UNAVAILABLE", method="Acknowledge", times=1,             the acknowledgements of one request fail, as those
          ack_failure="TRANSIENT_FAILURE_SERVICE_UNAVAILABLE")      of exactly-once delivery do; over a stream too
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any, Final

import grpc
import grpc.aio

from relay.dev.pubsub.settlement import PERMANENT, TRANSIENT
from relay.dev.pubsub.status import InvalidArgumentError, StatusError

FAULTS_SET: Final = "/relay.dev.Faults/Set"
EVERY_METHOD: Final = "*"
NO_ERROR: Final = "OK"


@dataclass(frozen=True, slots=True)
class Call:
    """What a fault may look at: the method's last name, and the topic, messages and ack ids that the request names."""

    method: str
    topic: str = ""
    messages: Sequence[Any] = ()
    ack_ids: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Fault:
    """Calls that match are answered `code`, or `OK` where they are only to be slow or silent."""

    code: str
    method: str = EVERY_METHOD  # its last name, such as Publish
    detail: str = "a fault that was asked for"
    topic: str = ""  # calls that name this topic, in full or by its last part; others pass
    attribute: str = ""  # Publish requests that contain a message of which this attribute ...
    value: str = ""  # ... has this value
    delay_ms: int = 0  # before the work, or the answer
    after: bool = False  # the work is done first
    silent: bool = False  # no answer ever comes, until the caller gives up or the emulator stops
    times: int = 0  # so many calls, 0 for all
    ack_failure: str = ""  # of every ack id in the call, as an ErrorInfo has it: TRANSIENT_FAILURE_... is tried again

    def __post_init__(self) -> None:
        if self.code not in grpc.StatusCode.__members__:
            raise InvalidArgumentError(f"{self.code!r} is not the name of a gRPC code")
        if self.code == NO_ERROR and not (self.delay_ms or self.silent):
            raise InvalidArgumentError("a fault that answers OK needs delay_ms or silent; else it is none")
        if self.ack_failure and (self.code == NO_ERROR or not self.ack_failure.startswith((TRANSIENT, PERMANENT))):
            raise InvalidArgumentError(
                f"an ack_failure, {self.ack_failure!r}, begins with {TRANSIENT} or {PERMANENT}, and needs a code of an"
                " error"
            )
        if self.delay_ms < 0 or self.times < 0:
            raise InvalidArgumentError(f"delay_ms {self.delay_ms} and times {self.times} must not be negative")

    @property
    def particularity(self) -> tuple[bool, bool, bool]:
        """What it asks for, the rarest first."""
        return bool(self.attribute), bool(self.topic), self.method != EVERY_METHOD

    @property
    def refuses(self) -> bool:
        """Whether it is an error at once, as an outage is."""
        return self.code != NO_ERROR and not (self.delay_ms or self.after or self.silent)

    def meets(self, call: Call) -> bool:
        """Whether the call is one of those that the fault is for."""
        return (
            self.method in {EVERY_METHOD, call.method}
            and (not self.topic or call.topic == self.topic or call.topic.endswith(f"/topics/{self.topic}"))
            and (not self.attribute or any(self._poisons(message) for message in call.messages))
        )

    def _poisons(self, message: Any) -> bool:
        # Asked first: reading a name that a protobuf map lacks would add it.
        return self.attribute in message.attributes and message.attributes[self.attribute] == self.value


_STOPPING = Fault("UNAVAILABLE", detail="the emulator is stopping")


class FaultError(StatusError):
    """A call met a fault in force."""

    def __init__(self, fault: Fault, ack_ids: Sequence[str] = ()) -> None:
        super().__init__(fault.detail, dict.fromkeys(ack_ids, fault.ack_failure) if fault.ack_failure else None)
        self.code = fault.code


@dataclass(slots=True)
class _InForce:
    fault: Fault
    left: float  # calls


class Faults:
    """The faults in force, the most particular first."""

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self._in_force: list[_InForce] = []
        self._changed = changed
        self._stopped = asyncio.Event()
        self.answered = 0
        """How many calls met a fault since the start."""

    def set(self, *faults: Fault) -> None:
        """Put these faults in force, and no others. What waits for an earlier one goes on waiting."""
        ordered = sorted(faults, key=lambda fault: fault.particularity, reverse=True)
        self._in_force = [_InForce(fault, fault.times or float("inf")) for fault in ordered]
        self._changed()

    def clear(self) -> None:
        """Put no fault in force."""
        self.set()

    def stop(self) -> None:
        """Answer every call with UNAVAILABLE, those that wait included, whatever else is in force."""
        self._stopped.set()
        self._changed()

    def resume(self) -> None:
        """Go on with the faults that are in force."""
        # Another one: the next event loop may not be the last one's.
        self._stopped = asyncio.Event()

    @asynccontextmanager
    async def around(self, call: Call) -> AsyncIterator[None]:
        """Do the call's work in the block, earlier, later or not at all. Raises what it is answered instead."""
        fault = self._meet(call)
        if fault is None:
            yield
        elif fault.after:
            yield
            await self._suffer(fault, call)
        else:
            await self._suffer(fault, call)
            yield

    def check(self, method: str) -> None:
        """For a call that is open: raise the error that ends it now, if there is one."""
        if self._stopped.is_set():
            raise FaultError(_STOPPING)
        found = self._find(Call(method))
        if found is not None and found.fault.refuses:
            raise FaultError(self._use(found))

    def ack_failure(self, method: str) -> str:
        """For ack ids that come over a stream: what they are answered as a call of the method would be, if anything."""
        found = self._find(Call(method))
        if found is None or not found.fault.ack_failure:
            return ""
        return self._use(found).ack_failure

    def set_from(self, body: bytes) -> bytes:
        """Answer FAULTS_SET: the body is a JSON array of faults, empty to clear them."""
        try:
            faults = [Fault(**fault) for fault in json.loads(body)]
        except (TypeError, ValueError) as error:
            raise InvalidArgumentError(
                f'write a JSON array such as [{{"code": "UNAVAILABLE", "method": "Publish"}}]: {error}'
            ) from error
        self.set(*faults)
        return json.dumps({"in_force": len(self._in_force), "answered": self.answered}).encode()

    def _meet(self, call: Call) -> Fault | None:
        if self._stopped.is_set():
            raise FaultError(_STOPPING)
        found = self._find(call)
        return None if found is None else self._use(found)

    def _find(self, call: Call) -> _InForce | None:
        return next((each for each in self._in_force if each.left and each.fault.meets(call)), None)

    def _use(self, found: _InForce) -> Fault:
        found.left -= 1
        self.answered += 1
        return found.fault

    async def _suffer(self, fault: Fault, call: Call) -> None:
        if fault.delay_ms or fault.silent:
            with suppress(TimeoutError):
                async with asyncio.timeout(None if fault.silent else fault.delay_ms / 1_000):
                    await self._stopped.wait()
                raise FaultError(_STOPPING)
        if fault.code != NO_ERROR:
            raise FaultError(fault, call.ack_ids)


async def set_faults(address: str, *faults: Fault) -> dict[str, Any]:
    """Put these faults, and no others, in force in the emulator at `address`.

    Returns how many are in force and how many calls met a fault so far.
    """
    async with grpc.aio.insecure_channel(address) as channel:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(FAULTS_SET)
        reply = await call(json.dumps([asdict(fault) for fault in faults]).encode())
    answer: dict[str, Any] = json.loads(reply)
    return answer
