"""What becomes of the ack ids of a request to an exactly-once subscription, in the words of the service."""

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from relay.dev.pubsub import wire
from relay.dev.pubsub.status import AckIdsError

AckFailures: TypeAlias = dict[str, str]
"""Ack id -> why it settled nothing. Those that begin with TRANSIENT are worth another try."""

TRANSIENT: Final = "TRANSIENT_FAILURE_"
PERMANENT: Final = "PERMANENT_FAILURE_"
INVALID: Final = f"{PERMANENT}INVALID_ACK_ID"
UNORDERED: Final = f"{TRANSIENT}UNORDERED_ACK_ID"


def check_settled(failures: AckFailures) -> None:
    """Refuse a request of its own in which some ack ids failed; the others are settled all the same.

    The failures travel as metadata, of which gRPC takes 8 to 16 kB unless a client allows for more
    (`grpc.max_metadata_size`): some 200 ack ids. Google's clients do, save on an emulator; whoever does not reads
    RESOURCE_EXHAUSTED, which is gRPC's own.
    """
    if failures:
        raise AckIdsError(failures)


def acknowledged(ack_ids: Iterable[str], failures: AckFailures) -> Any:
    """Confirm acknowledgements that came over a stream."""
    response = wire.StreamingPullResponse()
    _fill(response.acknowledge_confirmation, ack_ids, failures)
    return response


def modified(ack_ids: Iterable[str], failures: AckFailures) -> Any:
    """Confirm deadlines that came over a stream."""
    response = wire.StreamingPullResponse()
    _fill(response.modify_ack_deadline_confirmation, ack_ids, failures)
    return response


def _fill(confirmation: Any, ack_ids: Iterable[str], failures: AckFailures) -> None:
    for ack_id in dict.fromkeys(ack_ids):
        reason = failures.get(ack_id)
        if reason is None:
            confirmation.ack_ids.append(ack_id)
        elif reason == UNORDERED:
            confirmation.unordered_ack_ids.append(ack_id)
        elif reason.startswith(TRANSIENT):
            confirmation.temporary_failed_ack_ids.append(ack_id)
        else:
            confirmation.invalid_ack_ids.append(ack_id)
