"""The names under which the store remembers."""

import re
from uuid import NAMESPACE_URL, UUID, uuid5

from idempotency.errors import InvalidKeyError

# Of what is no UUID by itself. Never to be changed: identities that were derived before would be other ones.
_NAMESPACE = uuid5(NAMESPACE_URL, "https://outbox-relay/idempotency")
_BRACES = re.compile(r"[{}]")
_KNOWN_CONSUMERS = 1_024


class Keys:
    """The names of one prefix.

    The mark is `<prefix>:evt:processed:<consumer>:<event_id>`. The names beside it carry the whole mark as their hash
    tag, so all of an event lies in one slot of a cluster; a brace in the mark itself would be a tag of its own.
    """

    def __init__(self, prefix: str) -> None:
        if _names_nothing(prefix):
            raise InvalidKeyError(f"the prefix is {prefix!r}; name the application, as in prefix='pf'")
        _refuse_braces("the prefix", prefix)
        self.prefix = prefix
        self._stems: dict[str, str] = {}

    def stem(self, consumer: str) -> str:
        """What the marks of a consumer begin with; an event id completes it.

        Never completed by the broker's message id: the same event published twice has two of those.
        """
        found = self._stems.get(consumer)
        return self._new_stem(consumer) if found is None else found

    def beside(self, mark: str) -> list[str]:
        """The mark, the claim and the attempts of an event."""
        return [mark, self.claim(mark), self.attempts(mark)]

    def claim(self, mark: str) -> str:
        """Where the lease of an event lies."""
        return f"{self.prefix}:evt:claim:{{{mark}}}"

    def attempts(self, mark: str) -> str:
        """Where the claims of an event are counted."""
        return f"{self.prefix}:evt:attempts:{{{mark}}}"

    def lock(self, name: str) -> str:
        """Where a named lock lies."""
        if _names_nothing(name):
            raise InvalidKeyError(f"the name of the lock is {name!r}; everybody's nameless locks would be one")
        _refuse_braces("the name of the lock", name)
        return f"{self.prefix}:lock:{name}"

    def _new_stem(self, consumer: str) -> str:
        if _names_nothing(consumer):
            raise InvalidKeyError("the consumer's name is empty; events would be shared with every other nameless one")
        _refuse_braces("the consumer's name", consumer)
        if len(self._stems) >= _KNOWN_CONSUMERS:
            self._stems.clear()
        stem = self._stems[consumer] = f"{self.prefix}:evt:processed:{consumer}:"
        return stem


def identity(event_id: UUID | str) -> UUID:
    """The event's id, which is a UUID and not the nil one."""
    try:
        found = event_id if isinstance(event_id, UUID) else UUID(event_id)
    except (ValueError, AttributeError, TypeError):
        raise InvalidKeyError(f"the event id {event_id!r} is not a UUID") from None
    if not found.int:
        raise InvalidKeyError("the event id is the nil UUID; events would be taken for each other")
    return found


def identity_of_text(text: str) -> UUID:
    """The event id that stands for a text, such as the `Idempotency-Key` of an HTTP request.

    Always the same for the same text (a UUID of version 5); a text that looks like a UUID is a text like any other.
    """
    if _names_nothing(text):
        raise InvalidKeyError(f"the key is {text!r}; whatever has no key would be taken for the same")
    return uuid5(_NAMESPACE, text)


def check_fingerprint(fingerprint: str) -> None:
    """A fingerprint is one line of text."""
    if _names_nothing(fingerprint) or "\n" in fingerprint:
        raise InvalidKeyError(f"the fingerprint is {fingerprint!r}; give one line of text, such as a hash, or None")


def _names_nothing(name: object) -> bool:
    return not isinstance(name, str) or not name.strip()


def _refuse_braces(what: str, name: str) -> None:
    if _BRACES.search(name):
        raise InvalidKeyError(
            f"{what} is {name!r}; braces are kept for the slots of Redis Cluster, use other characters"
        )
