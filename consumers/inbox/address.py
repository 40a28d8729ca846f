"""Where the inbox is. A DATABASE_URL may be there for other things: it is judged where an inbox is asked for."""

from consumers.errors import ConfigurationError


def checked(url: str) -> str:
    """The connection string that DATABASE_URL has, if psycopg is there and can read it; or else ConfigurationError."""
    try:
        from relay.postgres.connect import connection_string  # noqa: PLC0415 -- consumers do without libpq
    except ImportError as error:
        why = str(error).partition("\n")[0].rstrip(".")
        raise ConfigurationError(
            f"the inbox needs psycopg and libpq, which cannot be loaded here: {why}; run: pip install 'psycopg[binary]'"
        ) from None
    try:
        return connection_string(url)
    except ValueError as error:
        raise ConfigurationError(f"DATABASE_URL {error}") from None
