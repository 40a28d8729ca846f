"""Everything that the relay raises on purpose, as a tree.

RelayError
├── EmitError                 the event was not stored
│   ├── AutocommitError       the connection would commit the event on its own
│   └── InvalidEventError     the event breaks a limit of the outbox or of the broker, or is not in the registry
├── ConfigurationError        the call or the settings are wrong: exit 2, nothing was started
│   └── SchemaError           the database's schema is missing, older or newer than this code
├── MigrationError            the schema could not be changed now; nothing was
├── BrokerError               the broker did not accept a request
├── ApiError                  the internal API did not do what a job asked of it
├── MessageError              this row cannot become a message, now or ever
├── InvariantError            the database contradicts what this code relies on; its transaction is rolled back
├── NoFurtherSessionError     the database has taken one session, and takes no further one
├── MoveError                 rows that are over could not be moved; they are where they were
├── OperateError              an operator's command could not be finished
├── AuditError                the audit could not be finished
├── ArchiveError              something of an archive could not be done; what was done before is recorded
└── DevError                  the embedded stack could not be started
"""

from typing import ClassVar


class RelayError(Exception):
    """Base of every error that the relay raises on purpose."""

    quotes_no_data: ClassVar[bool] = False
    """Whether what it quotes is what somebody wrote in code and settings: logs and histories tell it whole."""


class EmitError(RelayError):
    """The event was not stored."""


class AutocommitError(EmitError):
    """The connection is in autocommit mode and outside a transaction."""


class InvalidEventError(EmitError):
    """The event breaks a limit of the outbox or of the broker, or is none that its registry allows.

    `position` is its place in what was emitted, from 0, or None where the database did not tell it.
    """

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message)
        self.position = position


class ConfigurationError(RelayError):
    """The call or the settings are wrong; nothing was started."""

    quotes_no_data = True


class SchemaError(ConfigurationError):
    """The database's schema is missing, older or newer than this code."""


class MigrationError(RelayError):
    """The schema could not be changed now; nothing was."""


class BrokerError(RelayError):
    """The broker did not accept a request; `code` is its own name for the reason."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


class ApiError(RelayError):
    """The internal API did not do what a job asked of it; `code` is HTTP_ with its status, or with what went wrong."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


class MessageError(RelayError):
    """This row cannot become a message, now or ever; `code` names the broken limit."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


class InvariantError(RelayError):
    """The database contradicts what this code relies on; its transaction is rolled back."""


class NoFurtherSessionError(RelayError):
    """The database has taken one session, and takes no further one; `reason` is what it said."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


class MoveError(RelayError):
    """Rows that are over could not be moved; they are where they were."""

    quotes_no_data = True


class OperateError(RelayError):
    """An operator's command could not be finished; it says what is done and what is not."""


class AuditError(RelayError):
    """The audit could not be finished."""


class ArchiveError(RelayError):
    """Something of an archive could not be done; what was done before is recorded, and the next call goes on there."""

    quotes_no_data = True


class DevError(RelayError):
    """A server of the embedded stack could not be started."""
