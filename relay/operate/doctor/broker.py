"""Checks of the broker: that it is there, and that this account may publish to the topics."""

from collections.abc import Callable, Sequence
from typing import assert_never

from relay.brokers.pubsub_access import Access, PubSubAccess, TopicAccess
from relay.brokers.pubsub_client import PubSubAddress
from relay.errors import BrokerError, ConfigurationError
from relay.operate.doctor.findings import Check, Finding, fail, ok, warn
from relay.operate.remedies import created_or_corrected

QUESTION_SECONDS = 8.0
MOST_TOPICS = 50
_NO_NAME = "INVALID_ARGUMENT"


def broker_checks(address: PubSubAddress, topics: Callable[[], Sequence[str]]) -> list[Check]:
    """The checks; the topics are asked for once the database had its turn to name some."""

    async def look() -> Sequence[Finding]:
        try:
            asking = PubSubAccess(address)
        except ConfigurationError as error:
            return (fail("credentials", str(error), "see docs/deploy.md, Credentials"),)
        findings = [ok("credentials", f"none are needed by {address.emulator}" if address.emulator else "found")]
        async with asking:
            for topic in topics()[:MOST_TOPICS]:
                try:
                    findings.append(judge_topic(await asking.ask(topic, QUESTION_SECONDS)))
                except BrokerError as error:
                    findings.append(judge_error(topic, error))
                    if error.code != _NO_NAME:
                        break  # it will not be there for the next topic either
        return findings

    return [Check("broker", look)]


def judge_topic(known: TopicAccess) -> Finding:
    """Whether events for this topic will be taken."""
    name = f"topic {known.topic}"
    match known.access:
        case Access.GRANTED:
            return ok("broker", f"{name} is there and may be published to")
        case Access.MISSING:
            return fail("broker", f"{name} does not exist", created_or_corrected(known.topic))
        case Access.REFUSED:
            return fail("broker", f"{name} is not for this account to publish to", "grant it roles/pubsub.publisher")
        case Access.HIDDEN:
            return fail(
                "broker",
                f"{name} does not exist, or is not for this account to publish to",
                f"grant roles/pubsub.publisher; {created_or_corrected(known.topic)}",
            )
        case Access.UNKNOWN:
            return ok("broker", f"{name} cannot be seen with publish rights alone")
        case _:
            assert_never(known.access)


def judge_error(topic: str, error: BrokerError) -> Finding:
    """The broker could not be asked, or not for this."""
    if error.code == _NO_NAME:
        return fail(
            "broker",
            f"topic {topic!r} can be none, so its events wait or fail: {error}",
            "correct RELAY_TOPIC, RELAY_ROUTES or the rows: docs/operate.md, Pending rows with a wrong topic",
        )
    if error.code in {"UNAUTHENTICATED", "PERMISSION_DENIED"}:
        return fail("broker", f"topic {topic}: the account is refused: {error}", "see docs/deploy.md, Credentials")
    if error.code == "RESOURCE_EXHAUSTED":
        return warn("broker", f"topic {topic}: over its quota: {error}", "wait, or raise the quota of the project")
    return fail(
        "broker",
        f"topic {topic}: the broker cannot be reached: {error}",
        "see PUBSUB_EMULATOR_HOST, PUBSUB_ENDPOINT, and whether this machine reaches them",
    )
