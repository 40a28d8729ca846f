"""What a subscription is asked to be: refused, completed as the service would, changed, and made a policy.

`settings` is the Subscription of the API throughout.
"""

from typing import Any, Final

from relay.dev.pubsub import filters, limits, wire
from relay.dev.pubsub.status import InvalidArgumentError, OutOfRangeError, UnimplementedError
from relay.dev.pubsub.subscription import Policy

_NOT_EMULATED: Final = (
    "push_config.push_endpoint",
    "bigquery_config",
    "cloud_storage_config",
    "bigtable_config",
    "message_transforms",
)
_CHANGEABLE: Final = {
    "push_config",
    "bigquery_config",
    "cloud_storage_config",
    "bigtable_config",
    "ack_deadline_seconds",
    "retain_acked_messages",
    "message_retention_duration",
    "labels",
    "expiration_policy",
    "dead_letter_policy",
    "retry_policy",
    "enable_exactly_once_delivery",
    "message_transforms",
}
_RETENTION_SECONDS: Final = 7 * 24 * 3600
_MIN_BACKOFF_SECONDS: Final = 10
_MAX_BACKOFF_SECONDS: Final = 600
_FEWEST_ATTEMPTS: Final = 5
_MOST_ATTEMPTS: Final = 100


def completed(settings: Any) -> Any:
    """Return settings with the service's defaults filled in, or refuse them."""
    _refuse_what_is_not_emulated(settings)
    settings.ack_deadline_seconds = limits.ack_deadline(settings.ack_deadline_seconds)
    settings.state = wire.SUBSCRIPTION_ACTIVE
    if not settings.HasField("message_retention_duration"):
        settings.message_retention_duration.seconds = _RETENTION_SECONDS
    if settings.HasField("retry_policy"):
        _complete_retries(settings.retry_policy)
    if settings.HasField("dead_letter_policy"):
        _complete_dead_letters(settings.dead_letter_policy)
    return settings


def updated(settings: Any, request: Any) -> Any:
    """Return settings changed by an UpdateSubscriptionRequest, completed, or refuse the change."""
    paths = request.update_mask.paths
    if not paths:
        raise InvalidArgumentError("the update_mask names no field")
    for path in paths:
        if path not in wire.Subscription.DESCRIPTOR.fields_by_name:
            raise InvalidArgumentError(f"update_mask: {path!r} is no field of a subscription")
        if path not in _CHANGEABLE:
            raise InvalidArgumentError(f"update_mask: the {path} of a subscription cannot be changed")
    changed = wire.Subscription()
    changed.CopyFrom(settings)
    request.update_mask.MergeMessage(request.subscription, changed, True, True)  # noqa: FBT003 - replacing, not merging
    return completed(changed)


def policy_of(settings: Any) -> Policy:
    """Return how a subscription with completed settings delivers."""
    retry = settings.retry_policy
    return Policy(
        ack_deadline=settings.ack_deadline_seconds,
        ordered=settings.enable_message_ordering,
        exactly_once=settings.enable_exactly_once_delivery,
        filter=filters.parse(settings.filter) if settings.filter else None,
        max_attempts=settings.dead_letter_policy.max_delivery_attempts,
        min_backoff=_seconds(retry.minimum_backoff),
        max_backoff=_seconds(retry.maximum_backoff),
    )


def _refuse_what_is_not_emulated(settings: Any) -> None:
    for path in _NOT_EMULATED:
        value = settings
        for part in path.split("."):
            value = getattr(value, part)
        if value and value != type(value)():
            raise UnimplementedError(f"the emulator does not implement subscriptions with {path}")


def _complete_retries(policy: Any) -> None:
    for name, default in (("minimum_backoff", _MIN_BACKOFF_SECONDS), ("maximum_backoff", _MAX_BACKOFF_SECONDS)):
        if not policy.HasField(name):
            getattr(policy, name).seconds = default
        seconds = _seconds(getattr(policy, name))
        if not 0 <= seconds <= _MAX_BACKOFF_SECONDS:
            raise InvalidArgumentError(f"a {name} of {seconds} s is outside 0 to {_MAX_BACKOFF_SECONDS} seconds")
    lowest, highest = _seconds(policy.minimum_backoff), _seconds(policy.maximum_backoff)
    if highest < lowest:
        raise InvalidArgumentError(f"a maximum_backoff of {highest} s is less than the minimum_backoff of {lowest} s")


def _complete_dead_letters(policy: Any) -> None:
    limits.check_topic_name(policy.dead_letter_topic)
    attempts = policy.max_delivery_attempts or _FEWEST_ATTEMPTS
    if not _FEWEST_ATTEMPTS <= attempts <= _MOST_ATTEMPTS:
        raise OutOfRangeError(
            f"max_delivery_attempts is {attempts}; it must be {_FEWEST_ATTEMPTS} to {_MOST_ATTEMPTS}, or 0 for"
            f" {_FEWEST_ATTEMPTS}"
        )
    policy.max_delivery_attempts = attempts


def _seconds(duration: Any) -> float:
    seconds: float = duration.ToTimedelta().total_seconds()
    return seconds
