"""Who pays for a message that was not taken. The error raises a suspicion; a control gives the verdict.

A *control* is another message that the same topic took in a request sent after the one that failed. Without one a sick
row cannot be told from a sick broker, and then nobody pays, except for a bug of an adapter. With one, `delivery` asks
for the row once more first.

| what came back                                      | alone, with control     | alone, without     | among others |
|-----------------------------------------------------|-------------------------|--------------------|--------------|
| INVALID_ARGUMENT                                    | the row, for good       | the topic is away  | isolate      |
| anything else on the message's own path             | the row, one attempt    | the topic is away  | isolate      |
| what is no answer of a broker's: a bug of an adapter | the row, one attempt    | the same           | isolate      |
| the machine's own: OSError, MemoryError             | the row, one attempt    | the topic is away  | isolate      |
| RESOURCE_EXHAUSTED, of an ordering key              | the key rests a while   | the topic is away  | as alone     |
| RESOURCE_EXHAUSTED of others                        | the topic is away       | the same           | the same     |
| NOT_FOUND, PERMISSION_DENIED, UNAUTHENTICATED       | the topic is away       | the same           | the same     |

A row that could not even become a message pays for good, whatever the broker does. A row of a key that pays with an
attempt, or rests, holds up its key for as long; one that fails for good does so or not, as FailedHead says.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import assert_never

from relay.errors import BrokerError, MessageError
from relay.kernel.backoff import Jitter, Retry, uniform
from relay.outbox.rows import Reason


class Suspicion(Enum):
    """What an error makes one think of, before it is known how others fare."""

    NOT_BUILT = auto()  # the row has no message: no broker was asked
    MESSAGE = auto()  # the message is wrong, or the topic's name is: both draw the same code
    PATH = auto()  # something on the message's way: the message, or the whole broker
    ADAPTER = auto()  # an exception that no broker answers with
    THROTTLE = auto()  # too much at once
    TOPIC = auto()  # the topic is missing, or closed to us

    @property
    def of_a_row(self) -> bool:
        """Whether one row may be at fault, so that it is worth while to look for it."""
        return self in {Suspicion.MESSAGE, Suspicion.PATH, Suspicion.ADAPTER}


class Verdict(Enum):
    """Who pays."""

    ROW_INVALID = auto()  # the row: never again
    ROW_STRIKE = auto()  # the row: one attempt less
    KEY_RESTS = auto()  # nobody: the row's key, which was too fast, is left alone for a while
    TOPIC_OUTAGE = auto()  # nobody: the topic's circuit opens
    ISOLATE = auto()  # not known yet: look for the row among its neighbours


@dataclass(frozen=True, slots=True)
class Attempts:
    """How often a row may be tried, and how long it waits in between."""

    most: int
    retry: Retry


@dataclass(frozen=True, slots=True)
class Charge:
    """What a row pays. With a reason it is out of the claim; without one it comes again after the delay."""

    attempts: int
    reason: Reason | None
    delay_seconds: float


# How long a key rests that was too fast for the broker.
REST_SECONDS = 1.0

_BY_CODE = {
    "INVALID_ARGUMENT": Suspicion.MESSAGE,
    "RESOURCE_EXHAUSTED": Suspicion.THROTTLE,
    "NOT_FOUND": Suspicion.TOPIC,
    "PERMISSION_DENIED": Suspicion.TOPIC,
    "UNAUTHENTICATED": Suspicion.TOPIC,
}


def suspicion(error: Exception) -> Suspicion:
    """What the error points at."""
    match error:
        case MessageError():
            return Suspicion.NOT_BUILT
        case BrokerError():
            return _BY_CODE.get(error.code, Suspicion.PATH)
        case OSError() | MemoryError():
            return Suspicion.PATH  # the machine's, not the message's
        case _:
            return Suspicion.ADAPTER


def verdict(suspected: Suspicion, *, alone: bool, control: bool, keyed: bool = False) -> Verdict:
    """Who pays for a request that failed. `alone`: it carried one row. `control`: see the top of this module.

    `keyed`: its rows are those of an ordering key.
    """
    match suspected:
        case Suspicion.NOT_BUILT:
            return Verdict.ROW_INVALID
        case Suspicion.THROTTLE if keyed and control:
            return Verdict.KEY_RESTS
        case Suspicion.THROTTLE | Suspicion.TOPIC:
            return Verdict.TOPIC_OUTAGE
        case Suspicion.MESSAGE | Suspicion.PATH | Suspicion.ADAPTER if not alone:  # those `of_a_row`
            return Verdict.ISOLATE
        case Suspicion.ADAPTER:
            return Verdict.ROW_STRIKE
        case Suspicion.MESSAGE:
            return Verdict.ROW_INVALID if control else Verdict.TOPIC_OUTAGE
        case Suspicion.PATH:
            return Verdict.ROW_STRIKE if control else Verdict.TOPIC_OUTAGE
        case _:
            assert_never(suspected)


def charge(guilty: Verdict, attempts_before: int, attempts: Attempts, jitter: Jitter = uniform) -> Charge | None:
    """What the row pays by this verdict; None where it pays nothing."""
    count = attempts_before + 1
    match guilty:
        case Verdict.ROW_INVALID:
            return Charge(1, "non_retryable", 0.0)
        case Verdict.ROW_STRIKE if count >= attempts.most:
            return Charge(1, "max_attempts", 0.0)
        case Verdict.ROW_STRIKE:
            return Charge(1, None, attempts.retry.delay(count, jitter))
        case Verdict.KEY_RESTS:
            return Charge(0, None, REST_SECONDS)
        case Verdict.TOPIC_OUTAGE | Verdict.ISOLATE:
            return None
        case _:
            assert_never(guilty)
