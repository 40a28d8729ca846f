"""The rules of the service for names, messages and settings."""

import re
from collections.abc import Sequence
from typing import Any

from relay.dev.pubsub.status import InvalidArgumentError

MAX_REQUEST_BYTES = 10_000_000
MAX_REQUEST_MESSAGES = 1_000
MAX_ATTRIBUTES = 100
MAX_ATTRIBUTE_KEY_BYTES = 256
MAX_ATTRIBUTE_VALUE_BYTES = 1_024
MAX_ORDERING_KEY_BYTES = 1_024
MIN_ACK_DEADLINE = 10
MAX_ACK_DEADLINE = 600
DEFAULT_ACK_DEADLINE = 10

_RESERVED = "goog"
_RESOURCE_ID = re.compile(r"(?!goog)[A-Za-z][A-Za-z0-9\-_.~+%]{2,254}")
_PROJECT = re.compile(r"projects/[^/\s]+")
_UTF8_WIDEST = 4


def check_project(name: str) -> None:
    """Refuse anything but `projects/P`."""
    if not _PROJECT.fullmatch(name):
        raise InvalidArgumentError(f"{name!r} is not a project: write projects/PROJECT")


def check_topic_name(name: str) -> None:
    """Refuse anything but `projects/P/topics/T`."""
    _check_name(name, "topics")


def check_subscription_name(name: str) -> None:
    """Refuse anything but `projects/P/subscriptions/S`."""
    _check_name(name, "subscriptions")


def _check_name(name: str, collection: str) -> None:
    project, _, resource_id = name.partition(f"/{collection}/")
    if _PROJECT.fullmatch(project) and _RESOURCE_ID.fullmatch(resource_id):
        return
    raise InvalidArgumentError(
        f"{name!r} is not a resource name: write projects/PROJECT/{collection}/ID, where ID has"
        " 3 to 255 of the characters A-Z a-z 0-9 - _ . ~ + %, begins with a letter and not with"
        f" {_RESERVED!r}"
    )


def ack_deadline(seconds: int) -> int:
    """Return a subscription's or stream's ack deadline; 0 stands for the default."""
    if seconds == 0:
        return DEFAULT_ACK_DEADLINE
    if MIN_ACK_DEADLINE <= seconds <= MAX_ACK_DEADLINE:
        return seconds
    raise InvalidArgumentError(
        f"an ack deadline of {seconds} s is outside {MIN_ACK_DEADLINE} to {MAX_ACK_DEADLINE} seconds"
    )


def check_extension(seconds: int) -> None:
    """Refuse a new deadline for a delivery outside 0 (a nack) to 600 seconds."""
    if not 0 <= seconds <= MAX_ACK_DEADLINE:
        raise InvalidArgumentError(f"an ack deadline of {seconds} s is outside 0 to {MAX_ACK_DEADLINE} seconds")


class PublishRules:
    """The rules for a PublishRequest, remembering the attribute keys that passed."""

    _REMEMBERED = 10_000

    def __init__(self) -> None:
        self._good_keys: set[str] = set()

    def check_request(self, messages: Any, request_bytes: int) -> None:
        """Refuse a request of which the number of messages or the size breaks the rules."""
        if request_bytes > MAX_REQUEST_BYTES:
            raise InvalidArgumentError(
                f"the request has {request_bytes:,} bytes; at most {MAX_REQUEST_BYTES:,} are allowed"
            )
        if not messages:
            raise InvalidArgumentError("the request has no message")
        if len(messages) > MAX_REQUEST_MESSAGES:
            raise InvalidArgumentError(
                f"the request has {len(messages):,} messages; at most {MAX_REQUEST_MESSAGES:,} are allowed"
            )

    def check_messages(self, messages: Any, bodies: Sequence[bytes]) -> str:
        """Refuse messages that break the rules; return the ordering key that they share.

        `bodies` are the same messages as serialised.
        """
        ordering_key: str = messages[0].ordering_key
        _check_bytes("ordering key", ordering_key, MAX_ORDERING_KEY_BYTES)
        for message, body in zip(messages, bodies, strict=True):
            if message.ordering_key != ordering_key:
                raise InvalidArgumentError("the request's messages have different ordering keys")
            if attributes := message.attributes:
                self._check_attributes(attributes, len(body))
            elif not message.data:
                raise InvalidArgumentError("a message has neither data nor attributes")
        return ordering_key

    def _check_attributes(self, attributes: Any, message_bytes: int) -> None:
        if len(attributes) > MAX_ATTRIBUTES:
            raise InvalidArgumentError(
                f"a message has {len(attributes)} attributes; at most {MAX_ATTRIBUTES} are allowed"
            )
        if not self._good_keys.issuperset(attributes):
            self._check_keys(attributes)
        # A value is never longer than its message, so most messages need no look at theirs.
        if message_bytes > MAX_ATTRIBUTE_VALUE_BYTES:
            for key, value in attributes.items():
                _check_bytes(f"value of attribute {key!r}", value, MAX_ATTRIBUTE_VALUE_BYTES)

    def _check_keys(self, attributes: Any) -> None:
        for key in attributes:
            if not key:
                raise InvalidArgumentError("an attribute has an empty key")
            if key.startswith(_RESERVED):
                raise InvalidArgumentError(f"the attribute key {key!r} begins with {_RESERVED!r}, which is reserved")
            _check_bytes("attribute key", key, MAX_ATTRIBUTE_KEY_BYTES)
        if len(self._good_keys) > self._REMEMBERED:
            self._good_keys.clear()
        self._good_keys.update(attributes)


def _check_bytes(what: str, text: str, limit: int) -> None:
    if len(text) * _UTF8_WIDEST > limit and (size := len(text.encode())) > limit:
        raise InvalidArgumentError(f"the {what} has {size:,} bytes; at most {limit:,} are allowed")
