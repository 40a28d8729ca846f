"""What the service answers when it does not do what it was asked.

StatusError
├── InvalidArgumentError
├── NotFoundError
├── AlreadyExistsError
├── UnimplementedError      the real service would; this emulator does not
└── FaultError              a fault was asked for (faults.py)
"""


class StatusError(Exception):
    """An answer other than OK; `code` is its gRPC name, the message its detail."""

    code: str


class InvalidArgumentError(StatusError):
    """The request breaks a rule of the service."""

    code = "INVALID_ARGUMENT"


class NotFoundError(StatusError):
    """The resource does not exist."""

    code = "NOT_FOUND"


class AlreadyExistsError(StatusError):
    """The resource exists already."""

    code = "ALREADY_EXISTS"


class UnimplementedError(StatusError):
    """The real service would do this; the emulator says that it does not."""

    code = "UNIMPLEMENTED"
