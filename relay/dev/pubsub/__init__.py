"""Google Pub/Sub for demos and tests: strict where the service is strict, in memory.

In this process, `async with PubSubEmulator() as emulator:` and connect to `emulator.address`; as a
process of its own, `python -m relay.dev.pubsub --port 0`, which prints its address.

    wire, limits          how things travel, and the service's rules for them
    delivery, lanes,      the state of one subscription: what waits in which order,
    leases, subscription  who holds what until when
    catalog               topics, subscriptions by name, and publishing
    faults                errors, delays and silence on demand
    requests              what came for which topic
    service, streaming    the same over gRPC
"""

from relay.dev.pubsub.emulator import PubSubEmulator
from relay.dev.pubsub.faults import Fault, Faults, set_faults
from relay.dev.pubsub.requests import Requests, requests_of

__all__ = ["Fault", "Faults", "PubSubEmulator", "Requests", "requests_of", "set_faults"]
