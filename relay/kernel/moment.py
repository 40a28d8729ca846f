"""Times as people write them for a command: `2h` ago, or `2024-01-31T12:00:00Z`."""

from datetime import UTC, datetime, timedelta

from relay.kernel.duration import parse


def read(text: str) -> datetime | timedelta:
    """Read how long ago it was, or when; a time without a zone is UTC. Raises ValueError for what is neither."""
    try:
        return parse(text)
    except ValueError:
        pass  # it may be a time instead
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is neither a duration such as 2h nor an RFC 3339 time") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def before(now: datetime, moment: datetime | timedelta | None) -> datetime | None:
    """When that was, told from now."""
    return now - moment if isinstance(moment, timedelta) else moment
