"""The names under which the store remembers."""

from uuid import UUID

from idempotency.errors import InvalidKeyError

_NIL = UUID(int=0)


def processed(prefix: str, consumer: str, event_id: UUID | str) -> str:
    """The key of "this consumer has processed this event".

    Never built from the broker's message id: the same event published twice has two of those.
    """
    if not consumer.strip():
        raise InvalidKeyError("the consumer's name is empty; events would be shared with every other nameless one")
    try:
        identity = event_id if isinstance(event_id, UUID) else UUID(event_id)
    except (ValueError, AttributeError, TypeError):
        raise InvalidKeyError(f"the event id {event_id!r} is not a UUID") from None
    if identity == _NIL:
        raise InvalidKeyError("the event id is the nil UUID; events would be taken for each other")
    return f"{prefix}:evt:processed:{consumer}:{identity}"
