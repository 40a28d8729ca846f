-- No less than the message takes on the wire. The table computes it, so that no row can understate what it costs to
-- claim; 512 bytes cover the names of the relay's own attributes and the framing.
create function outbox_size(payload jsonb, attributes jsonb, event_type text, aggregate_type text, aggregate_id text,
                            ordering_key text) returns integer
language plpgsql immutable parallel safe
as $$
declare
    size bigint := 512 + octet_length(payload::text) + octet_length(attributes::text) + octet_length(event_type)
                   + octet_length(aggregate_type) + octet_length(aggregate_id) + coalesce(octet_length(ordering_key), 0);
begin
    if size > 9500000 then
        raise exception using
            errcode = 'invalid_parameter_value',
            message = format('outbox_events: the event %s of %s %s has a message of %s bytes, the limit is 9500000',
                             event_type, aggregate_type, left(aggregate_id, 64), size);
    end if;
    return size;
end
$$;

-- The outbox: a row is pending, published or failed, and its state is stored once.
create table outbox_events (
    -- Order of insertion; also the message's `sequence`. Never cached: a cache would hand out ids out of order.
    id              bigint generated always as identity (cache 1) primary key,
    event_id        uuid not null,
    event_type      text not null,
    aggregate_type  text not null,
    aggregate_id    text not null,
    -- Overrides the routing of this one row; once published, where it went.
    topic           text,
    -- Set: first deliveries in commit order within the key.
    ordering_key    text,
    -- Set: at most one row for as long as that row is kept.
    dedup_key       text,
    payload         jsonb not null,
    attributes      jsonb not null default '{}',
    -- So that a claim is bounded in bytes. Computed when the row is written, not again when it is marked.
    size_bytes      integer not null generated always as (
        outbox_size(payload, attributes, event_type, aggregate_type, aggregate_id, ordering_key)) stored,
    -- Not now(): an event of a long transaction must not look old.
    created_at      timestamptz not null default clock_timestamp(),
    -- Scheduled events and retries; '-infinity' means at once.
    available_at    timestamptz not null default '-infinity',
    attempt_count   integer not null default 0,
    last_error      text,
    last_error_code text,
    published_at    timestamptz,
    -- The broker's own id for the message.
    message_id      text,
    failed_at       timestamptz,
    failure_reason  text,
    -- A failed row behind which its key waits; decided when the row fails, so that relays with different settings agree.
    blocks_key      boolean not null default false,

    constraint outbox_events_event_type check (octet_length(event_type) between 1 and 255),
    constraint outbox_events_aggregate_type check (octet_length(aggregate_type) between 1 and 255),
    constraint outbox_events_aggregate_id check (octet_length(aggregate_id) between 1 and 1024),
    constraint outbox_events_topic check (octet_length(topic) between 1 and 512),
    constraint outbox_events_ordering_key check (octet_length(ordering_key) between 1 and 1024),
    constraint outbox_events_dedup_key check (octet_length(dedup_key) between 1 and 1024),
    constraint outbox_events_payload_is_an_envelope check (coalesce(
        payload ?& array['event_id', 'event_type', 'version', 'occurred_at', 'actor', 'data']
        and payload ->> 'event_id' = event_id::text
        and payload ->> 'event_type' = event_type
        and jsonb_typeof(payload -> 'version') = 'number'
        and jsonb_typeof(payload -> 'occurred_at') = 'string'
        and jsonb_typeof(payload -> 'actor') in ('object', 'null'), false)),
    constraint outbox_events_attributes check (jsonb_typeof(attributes) = 'object'),
    -- The message states it; 'infinity' has no RFC 3339 form.
    constraint outbox_events_created_at check (isfinite(created_at)),
    constraint outbox_events_available_at check (available_at < 'infinity'),
    constraint outbox_events_attempt_count check (attempt_count >= 0),
    constraint outbox_events_last_error check (char_length(last_error) <= 1024 and char_length(last_error_code) <= 64),
    constraint outbox_events_published check ((published_at is null) = (message_id is null)),
    constraint outbox_events_failed check (
        (failed_at is null) = (failure_reason is null)
        and failure_reason in ('max_attempts', 'non_retryable', 'discarded')
        and (failed_at is null or published_at is null)
        and (failed_at is not null or not blocks_key))
);

create unique index outbox_events_event_id on outbox_events (event_id);
create unique index outbox_events_dedup_key on outbox_events (dedup_key) where dedup_key is not null;

-- The claims walk these three; each row is in at most one of them, and published rows are in none.
create index outbox_events_fresh on outbox_events (id)
    where published_at is null and failed_at is null and ordering_key is null and available_at = '-infinity';
create index outbox_events_delayed on outbox_events (available_at, id)
    where published_at is null and failed_at is null and ordering_key is null and available_at > '-infinity';
create index outbox_events_ordered on outbox_events (ordering_key, id)
    where published_at is null and ordering_key is not null and (failed_at is null or blocks_key);

-- What operators look at.
create index outbox_events_failed_rows on outbox_events (failed_at, id) where failed_at is not null;

comment on table outbox_events is 'Events on their way to the broker. Written through outbox_emit(jsonb), read and marked by the relay.';
