"""Times as people write them for a command, `2h` ago or `2024-01-31T12:00:00Z`, and as scripts are told them."""

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


def rfc3339(moment: datetime) -> str:
    """In UTC and to the microsecond."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def rfc3339_of(text: str) -> str:
    """The same of a time as Postgres writes it; of a year that Python has not, or what else is no time, the text."""
    try:
        return rfc3339(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        return text
