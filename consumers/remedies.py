"""What to do about what a line tells."""

import ssl
from typing import Final

from consumers.events import Fate
from relay.errors import ConfigurationError
from relay.kernel.wording import kind_of

_PASSES = "none is needed where it passes; else"
# Parts of what a server of Postgres says that lets nobody in.
_OF_LOGINS: Final = ("authentication failed", "no password supplied", "no pg_hba.conf entry")


def of_delivery(fate: Fate, code: str, consumer: str, *, inbox: bool = False) -> str:
    """About a delivery that failed."""
    match fate, code:
        case Fate.RETRIED, "NEWER_VERSION":
            return "deploy a handler of this version; until then the event is held"
        case Fate.RETRIED, "TIMEOUT":
            return f"{_PASSES} raise the handler's timeout, or see what it waits for"
        case Fate.RETRIED, _:
            return f"{_PASSES} see what the handler raised, and where"
        case Fate.DEAD, "EXPIRES":
            return "have the subscription keep messages for longer, or give up earlier by the retry policy; " + _replay(
                inbox=inbox
            )
        case Fate.DEAD, "NO_UPCASTER":
            return "register an upcaster from that version; " + _replay(inbox=inbox)
        case Fate.DEAD, _:
            return "mend what the error says; " + _replay(inbox=inbox)
        case Fate.INVALID, _:
            return "correct the producer, or the model that the handler takes; " + _replay(inbox=inbox)
        case Fate.UNDECODABLE, _:
            return "see who publishes to the topic beside the relay; such a message cannot be handled"
        case Fate.LEASE_LOST, _:
            return (
                "where it is frequent, see that no handler blocks the event loop, that the store answers, or raise "
                + ("INBOX_LEASE_MS" if inbox else "IDEMPOTENCY_LEASE")
            )
        case _:
            raise ValueError(f"a delivery of {consumer!r} that is {fate.value} has not failed")


def of_store(error: BaseException) -> str:
    """About a store that does not answer."""
    causes = list(_causes(error))
    kinds = {kind_of(cause) for cause in causes}
    if kinds & {"AuthenticationError", "AuthorizationError", "NoPermissionError"}:
        return "correct the user and the password in REDIS_URL, or have Redis allow them its commands"
    if any(isinstance(cause, ssl.SSLError) or "CERTIFICATE_VERIFY" in str(cause) for cause in causes):
        return "give the server's certificates in REDIS_CA_FILE, or set REDIS_TLS_VERIFY=off where they are self-signed"
    if any("OOM" in str(cause) for cause in causes):
        return "Redis is full: give it more memory; never have it evict, for it would forget what was processed"
    return "none is needed when Redis comes back; else see that REDIS_URL leads to it from this host"


def of_inbox(error: BaseException) -> str:
    """About an inbox that does not answer."""
    causes = list(_causes(error))
    states = [str(getattr(cause, "sqlstate", "") or "") for cause in causes]
    said = " ".join(str(cause) for cause in causes if isinstance(cause, ConfigurationError))
    match next(filter(None, states), ""):
        case "42P01" | "42703" | "42883" | "3F000":
            return "bring the inbox up with `python -m consumers migrate`; INBOX_SCHEMA names where it is"
        case "42501":
            return (
                "grant the role of DATABASE_URL what it needs on the inbox's tables, or run as the role that made them"
            )
        case "53300":
            return "no connection is left on the server: raise its max_connections, or lower INBOX_CONNECTIONS"
        case "53100":
            return "the server's disk is full: make room on it"
        case "25006":
            return "have DATABASE_URL lead to the primary server: the one it leads to cannot be written"
        case "57014":
            return "see in pg_stat_activity what holds the server up, and that autovacuum comes to the inbox's tables"
    if any(part in said for part in _OF_LOGINS):
        return "correct the user and the password in DATABASE_URL, or have the server let them in"
    if said:
        return "correct DATABASE_URL by what the error says"
    return "none is needed when the server comes back; if it is up, see that DATABASE_URL leads to it from this host"


def of_crash() -> str:
    """About a process that was silent for longer than its lease."""
    return (
        "see how its owner ended: killed, out of memory, cut off from the database, or with a handler that blocked the "
        "event loop for longer than INBOX_LEASE_MS"
    )


def of_source(code: str, subscription: str) -> str:
    """About a subscription that cannot be read."""
    match code:
        case "NOT_FOUND":
            return f"subscription {subscription} is gone: create it again on the topic of the events"
        case "PERMISSION_DENIED":
            return f"give this service account the role roles/pubsub.subscriber on subscription {subscription}"
        case "UNAUTHENTICATED":
            return "the credentials are refused: see GOOGLE_CREDENTIALS_JSON, or GOOGLE_APPLICATION_CREDENTIALS"
        case "RESOURCE_EXHAUSTED":
            return "a quota of the project is used up: raise it, or wait"
        case _:
            return "none is needed when the broker comes back; else see whether this host reaches it"


def of_dead_letters(code: str, topic: str) -> str:
    """About a dead-letter topic that takes nothing."""
    match code:
        case "NOT_FOUND":
            return f"topic {topic} does not exist: create it by `python -m consumers dead-letters create module:name`"
        case "PERMISSION_DENIED":
            return f"give this service account the role roles/pubsub.publisher on topic {topic}"
        case _:
            return of_source(code, "")


def _replay(*, inbox: bool) -> str:
    if inbox:
        return "then `python -m consumers deliveries retry` has it handled again"
    return "then `python -m consumers dead-letters replay` has it handled again"


def _causes(error: BaseException) -> "list[BaseException]":
    """The error, and what it came of."""
    found: list[BaseException] = []
    step: BaseException | None = error
    while step is not None and step not in found:
        found.append(step)
        step = step.__cause__ or step.__context__
    return found
