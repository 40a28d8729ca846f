"""For the tests of those who write handlers: a consumer at work in memory, on a clock that the test moves."""

from consumers.events import DeliverySettled, Fate
from consumers.testing.broker import DeadLetter
from consumers.testing.clock import FakeClock
from consumers.testing.deliveries import Deliveries, in_memory
from consumers.testing.handled import Handled, handle
from consumers.testing.proof import Failure, Proof, prove_idempotent

__all__ = [
    "DeadLetter",
    "Deliveries",
    "DeliverySettled",
    "Failure",
    "FakeClock",
    "Fate",
    "Handled",
    "Proof",
    "handle",
    "in_memory",
    "prove_idempotent",
]
