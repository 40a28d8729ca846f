"""A session of the inbox: what goes wrong there is a store that does not answer."""

from collections.abc import Callable, Mapping
from typing import Final

import psycopg

from consumers.errors import ConfigurationError
from idempotency import StoreUnavailableError
from relay import errors as relay_errors
from relay.kernel.failure import told
from relay.postgres import session
from relay.postgres.session import UNKEPT, Connect
from relay.postgres.statements import Statements
from relay.postgres.wire import Row

__all__ = ["STATEMENT_SECONDS", "UNKEPT", "Connect", "Session", "statement"]

statement = Statements("consumers.inbox")

# No statement of ours waits for anybody else for long: what others hold is passed over.
STATEMENT_SECONDS: Final = 10.0


class Session(session.Session):
    """Says one statement after the other. Raises StoreUnavailableError where the database does not answer."""

    def __init__(self, connect: Connect, schema: str, skew: Callable[[], float]) -> None:
        super().__init__(connect, statement, schema, skew, STATEMENT_SECONDS)

    async def ask_together(self, *statements: tuple[str, Mapping[str, object]]) -> list[list[Row]]:
        """The rows of each, which must return some; what they do is done together or not at all.

        Raises one of UNKEPT where a value cannot be kept, and StoreUnavailableError for all else that goes wrong:
        whether it was done is not known then.
        """
        try:
            return await super().ask_together(*statements)
        except UNKEPT:
            raise
        except (psycopg.Error, OSError, TimeoutError, relay_errors.RelayError, ConfigurationError) as error:
            raise StoreUnavailableError(f"the inbox was not reached: {told(error)}") from error
