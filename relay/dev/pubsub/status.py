"""What the service answers when it does not do what it was asked.

StatusError
├── InvalidArgumentError
│   └── AckIdsError         ... with the ack ids that were not settled
├── OutOfRangeError
├── NotFoundError
├── AlreadyExistsError
├── UnimplementedError      the real service would; this emulator does not
└── FaultError              a fault was asked for (faults.py)
"""

from collections.abc import Mapping


class StatusError(Exception):
    """An answer other than OK; `code` is its gRPC name, the message its detail.

    `ack_failures` tells of ack ids in the request what became of them, in the words of the service.
    """

    code: str

    def __init__(self, message: str = "", ack_failures: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.ack_failures = ack_failures or {}


class InvalidArgumentError(StatusError):
    """The request breaks a rule of the service."""

    code = "INVALID_ARGUMENT"


class AckIdsError(InvalidArgumentError):
    """Ack ids of an exactly-once subscription were not settled; the others of the request were."""

    def __init__(self, ack_failures: Mapping[str, str]) -> None:
        count = len(ack_failures)
        super().__init__(f"{count} ack ids of the request are not, or no longer, those of a delivery", ack_failures)


class OutOfRangeError(StatusError):
    """A number of the request is beyond what the service has for it."""

    code = "OUT_OF_RANGE"


class NotFoundError(StatusError):
    """The resource does not exist."""

    code = "NOT_FOUND"


class AlreadyExistsError(StatusError):
    """The resource exists already."""

    code = "ALREADY_EXISTS"


class UnimplementedError(StatusError):
    """The real service would do this; the emulator says that it does not."""

    code = "UNIMPLEMENTED"
