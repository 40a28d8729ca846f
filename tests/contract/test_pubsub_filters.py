"""Filters: what a subscription with one delivers. Their language is tested with the emulator's parser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from google.pubsub_v1 import types

if TYPE_CHECKING:
    from tests.contract.conftest import Service

WANTED = 'attributes.kind = "wanted"'
NO_FILTERS = {
    "syntax": "attributes.kind = wanted",
    "257 bytes": f'attributes:"{"k" * 244}"',
}


def of_kind(kind: str, key: str = "") -> dict[str, object]:
    """A message that consists of little else."""
    return {"data": kind.encode(), "attributes": {"kind": kind}, "ordering_key": key}


async def test_a_pull_brings_what_passes_the_filter(service: Service) -> None:
    """The rest counts as acknowledged; a subscription without the filter gets everything."""
    topic = await service.topic()
    name = await service.subscription(topic, filter=WANTED)
    unfiltered = await service.subscription(topic)
    await service.publish(topic, of_kind("other"), of_kind("wanted"), {"data": b"none"}, of_kind("wanted"))
    received = await service.pull(name, 2)
    assert [each.message.data for each in received] == [b"wanted"] * 2
    await service.modify(name, 0, received[0])
    assert [each.message.data for each in await service.pull(name, 1)] == [b"wanted"]
    assert not await service.pull_now(name)
    assert len(await service.pull(unfiltered, 4)) == 4


async def test_a_stream_brings_what_passes_the_filter(service: Service) -> None:
    """Over a stream as by a pull."""
    topic = await service.topic()
    name = await service.subscription(topic, filter=f"NOT {WANTED} AND attributes:kind")
    stream = await service.stream(name)
    await service.publish(topic, of_kind("wanted"), {"data": b"none"})
    await service.publish(topic, of_kind("other"))
    assert (await stream.next()).message.data == b"other"
    stream.call.cancel()


async def test_a_key_goes_on_past_what_the_filter_keeps_out(service: Service) -> None:
    """Nobody waits for a message that nobody gets."""
    topic = await service.topic()
    name = await service.subscription(topic, filter=WANTED, enable_message_ordering=True)
    await service.publish(topic, of_kind("other", "k"), of_kind("wanted", "k"))
    await service.publish(topic, of_kind("other", "k"))
    assert [each.message.data for each in await service.pull(name, 1)] == [b"wanted"]


@pytest.mark.parametrize("case", NO_FILTERS)
async def test_a_filter_that_makes_no_sense_is_refused(service: Service, case: str) -> None:
    """INVALID_ARGUMENT, and the subscription is not made."""
    text = NO_FILTERS[case]
    name = f"projects/contract/subscriptions/no-filter-{len(text)}"
    request = types.Subscription(name=name, topic=await service.topic(), filter=text)
    assert await service.refusal("Subscriber/CreateSubscription", request) == "INVALID_ARGUMENT"
    get = types.GetSubscriptionRequest(subscription=name)
    assert await service.refusal("Subscriber/GetSubscription", get) == "NOT_FOUND"


async def test_a_filter_is_told_and_stays(service: Service) -> None:
    """It is part of the subscription's description, and cannot be changed."""
    name = await service.subscription(await service.topic(), filter=WANTED)
    get = types.GetSubscriptionRequest(subscription=name)
    assert (await service.call("Subscriber/GetSubscription", get)).filter == WANTED
    change = types.UpdateSubscriptionRequest(
        subscription={"name": name, "filter": "attributes:kind"}, update_mask={"paths": ["filter"]}
    )
    assert await service.refusal("Subscriber/UpdateSubscription", change) == "INVALID_ARGUMENT"
