"""Faults: what the emulator answers instead of doing its work, until told otherwise.

Set in the process (`emulator.faults.set(Fault("UNAVAILABLE", method="Publish"))`) or from
another one with `set_faults(address, ...)`, which calls the method FAULTS_SET.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

import grpc
import grpc.aio

from relay.dev.pubsub.status import InvalidArgumentError, StatusError

FAULTS_SET: Final = "/relay.dev.Faults/Set"
EVERY_METHOD: Final = "*"


@dataclass(frozen=True, slots=True)
class Fault:
    """Calls of `method`, by its last name such as Publish, are answered `code`."""

    code: str
    method: str = EVERY_METHOD
    detail: str = "a fault that was asked for"

    def __post_init__(self) -> None:
        if self.code not in grpc.StatusCode.__members__ or self.code == "OK":
            raise InvalidArgumentError(f"{self.code!r} is not the name of a gRPC error code")


class FaultError(StatusError):
    """A call met a fault in force."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.detail)
        self.code = fault.code


class Faults:
    """The faults in force: one a method, the method's own before that of every method."""

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self._by_method: dict[str, Fault] = {}
        self._changed = changed
        self.answered = 0
        """How many calls were answered with a fault since the start."""

    def set(self, *faults: Fault) -> None:
        """Put these faults in force, and no others."""
        self._by_method = {fault.method: fault for fault in faults}
        self._changed()

    def clear(self) -> None:
        """Put no fault in force."""
        self.set()

    def check(self, method: str) -> None:
        """Raise the fault that a call of this method is to be answered with, if there is one."""
        if not self._by_method:
            return
        fault = self._by_method.get(method) or self._by_method.get(EVERY_METHOD)
        if fault is not None:
            self.answered += 1
            raise FaultError(fault)

    def set_from(self, body: bytes) -> bytes:
        """Answer FAULTS_SET: the body is a JSON array of faults, empty to clear them."""
        try:
            faults = [Fault(**fault) for fault in json.loads(body)]
        except (TypeError, ValueError) as error:
            raise InvalidArgumentError(
                f'write a JSON array such as [{{"code": "UNAVAILABLE", "method": "Publish"}}]: {error}'
            ) from error
        self.set(*faults)
        return json.dumps({"in_force": len(self._by_method), "answered": self.answered}).encode()


async def set_faults(address: str, *faults: Fault) -> dict[str, Any]:
    """Put these faults, and no others, in force in the emulator at `address`.

    Returns how many are in force and how many calls were answered with a fault so far.
    """
    async with grpc.aio.insecure_channel(address) as channel:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(FAULTS_SET)
        reply = await call(json.dumps([asdict(fault) for fault in faults]).encode())
    answer: dict[str, Any] = json.loads(reply)
    return answer
