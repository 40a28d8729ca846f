-- An event is stored once for each consumer; sorted, because two that store the same events in another order deadlock.
with stored as (
    insert into inbox_deliveries
           (consumer, event_id, event_type, event_version, sequence, ordering_key, shard, message_id, envelope, attributes)
    select %(consumer)s, event_id, event_type, event_version, sequence, nullif(ordering_key, ''), shard,
           nullif(message_id, ''), envelope, attributes
      from rows from (
           unnest(%(event_ids)s::uuid[], %(event_types)s::text[], %(event_versions)s::integer[], %(sequences)s::bigint[],
                  %(ordering_keys)s::text[], %(shards)s::integer[], %(message_ids)s::text[]),
           jsonb_array_elements(%(envelopes)s::jsonb),
           jsonb_array_elements(%(attributes)s::jsonb)
           ) as arrived(event_id, event_type, event_version, sequence, ordering_key, shard, message_id, envelope,
                        attributes)
     order by event_id
    on conflict (consumer, event_id, recipient) do nothing
    returning id, event_id
), told as (
    insert into inbox_history (delivery_id, what) select id, 'created' from stored
)
select event_id::text from stored
