"""Google Pub/Sub for demos and tests: strict where the service is strict, in memory.

In this process, `async with PubSubEmulator() as emulator:` and connect to `emulator.address`; as a
process of its own, `python -m relay.dev.pubsub --port 0`, which prints its address.

    wire, limits          how things travel, and the service's rules for them
    delivery, lanes,      the state of one subscription: what waits in which order,
    leases, subscription  who holds what until when
    settlement            what becomes of ack ids, where delivery is exactly-once
    filters               the language of subscription filters
    settings              what a subscription is asked to be, checked and completed
    dead_letters,         what a message becomes after its last attempt,
    burials               and that it does so in time
    catalog               topics, subscriptions by name, and publishing
    faults                errors, delays and silence on demand
    requests              what came for which topic
    waiting               for what changes, and for what is due
    service, streaming    the same over gRPC

Subscriptions have ordering, filters, retry and dead-letter policies and exactly-once delivery, for Pull and
StreamingPull alike, and can be updated. What the service does "on a best effort basis" happens exactly: a delivery is
repeated only after a nack or a deadline, its own or that of an earlier one of its key; a pause lasts as long as it
should; a dead letter is made at the maximum of attempts.

UNIMPLEMENTED are push, export to BigQuery, Cloud Storage and Bigtable, message transforms, Seek and snapshots, schemas,
and updates of topics. Part of a subscription's description and of no effect are retention, expiration and
`retain_acked_messages`: what waits is kept for as long as the emulator lives, what was acknowledged is not.
"""

from relay.dev.pubsub.emulator import PubSubEmulator
from relay.dev.pubsub.faults import Fault, Faults, set_faults
from relay.dev.pubsub.requests import Requests, requests_of

__all__ = ["Fault", "Faults", "PubSubEmulator", "Requests", "requests_of", "set_faults"]
