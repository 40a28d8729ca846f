"""Remedies that several places name in the same words, or that a line chooses by its error."""

from relay.errors import ConfigurationError
from relay.outbox.listening import DeafError

# Parts of what a server says that lets nobody in.
_OF_LOGINS = ("authentication failed", "no password supplied", "no pg_hba.conf entry")
_DIRECT = "a direct connection to the database of DATABASE_URL"


def created_or_corrected(topic: str) -> str:
    """What to do about a topic that is not there: a mistyped name must not become a topic that nobody reads."""
    return (
        f"if the name is right, create it with `python -m relay topics ensure {topic}`; "
        "if it is mistyped, correct RELAY_TOPIC, RELAY_ROUTES or the rows"
    )


def one_version(version: int, release: int) -> str:
    """What to do where the schema's version is the one before the release's, or after it."""
    if version < release:
        return "bring the schema up with: python -m relay migrate"
    return "deploy the release that migrated it"


def heard_again(error: BaseException) -> str:
    """What to do about a connection on which a relay would hear of new events."""
    text = str(error)
    setting = "DATABASE_URL" if "refuses DATABASE_URL" in text else "RELAY_LISTEN_URL"
    match error:
        case DeafError():
            return f"set RELAY_LISTEN_URL to {_DIRECT}, or RELAY_NOTIFY=off"
        case ConfigurationError() if any(part in text for part in _OF_LOGINS):
            return f"correct the user and the password in {setting}, or have the server let them in"
        case ConfigurationError() if "does not exist" in text:
            return f"correct the database or the role that {setting} names"
        case ConfigurationError():
            return f"set RELAY_LISTEN_URL to {_DIRECT}: what it leads to is not that, or is refused as the error says"
        case _:
            return (
                "none is needed when the server comes back; if it is up, see that the host and port of "
                "RELAY_LISTEN_URL, or of DATABASE_URL where that is not set, lead to it"
            )
