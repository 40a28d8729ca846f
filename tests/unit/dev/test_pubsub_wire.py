"""The frames put together by hand against protobuf's own."""

from google.pubsub_v1 import types
from hypothesis import given
from hypothesis import strategies as st

from relay.dev.pubsub import wire

Message = types.PubsubMessage.pb()
_sizes = st.sampled_from([0, 1, 100, 127, 128, 16_383, 16_384, 2_097_152])
_nanoseconds = st.integers(min_value=0, max_value=2**62)


@given(size=_sizes, ack_id=st.from_regex(r"[0-9a-f]{1,200}", fullmatch=True), attempt=_sizes)
def test_a_received_message_is_framed_as_protobuf_would(size: int, ack_id: str, attempt: int) -> None:
    """A pull's response made of frames parses to what was put in."""
    message = Message(data=b"x" * size)
    frame = wire.received_message(ack_id, message.SerializeToString(), attempt)
    (received,) = types.PullResponse.pb().FromString(frame).received_messages
    assert received.ack_id == ack_id
    assert received.message == message
    assert received.delivery_attempt == attempt


@given(nanoseconds=_nanoseconds, message_id=st.from_regex(r"[0-9]{1,20}", fullmatch=True))
def test_the_services_own_fields_win(nanoseconds: int, message_id: str) -> None:
    """Appending id and time to a message sets them, whatever the publisher wrote there."""
    forged = Message(data=b"x", message_id="forged", publish_time={"seconds": 7, "nanos": 7})
    stored = Message.FromString(
        forged.SerializeToString() + wire.publish_time(nanoseconds) + wire.message_id(message_id)
    )
    assert stored.message_id == message_id
    time = stored.publish_time
    assert time.seconds * 1_000_000_000 + time.nanos == nanoseconds
    assert stored.data == b"x"


@given(sizes=st.lists(_sizes, max_size=5), extra=st.booleans())
def test_messages_are_cut_out_of_their_request(sizes: list[int], *, extra: bool) -> None:
    """Each message of a request is found as it would be serialised, unknown fields or not."""
    messages = [Message(data=b"x" * size) for size in sizes]
    request = wire.PublishRequest(topic="t" * 200, messages=messages)
    raw = request.SerializeToString()
    if extra:  # field 15, the number 200
        raw = bytes([15 << 3 | 0, 0xC8, 0x01]) + raw
    parsed = wire.PublishRequest.FromString(raw)
    assert wire.messages_of(raw, parsed.messages) == [each.SerializeToString() for each in messages]
