-- Chosen rows as the events that a take-over would make of them: what is wrong with each, and how the outbox has it.
-- Only names of fields leave the database, no value. What the relay changes in a row of its own is not compared.
select {keys},
       adopt_fault.fault,
       octet_length(adopt_new.event::text),
       adopt_known.id is not null,
       case when adopt_known.id is null then '{{}}' else array_remove(array[
           case when adopt_new.event ? 'event_id'
                 and adopt_known.event_id <> (adopt_new.event ->> 'event_id')::uuid then 'event_id' end,
           case when adopt_known.event_type <> adopt_new.event ->> 'event_type' then 'event_type' end,
           case when adopt_known.aggregate_type <> adopt_new.event ->> 'aggregate_type' then 'aggregate_type' end,
           case when adopt_known.aggregate_id <> adopt_new.event ->> 'aggregate_id' then 'aggregate_id' end,
           case when adopt_known.ordering_key is distinct from adopt_new.event ->> 'ordering_key'
                then 'ordering_key' end,
           case when adopt_known.dedup_key is distinct from adopt_new.event ->> 'dedup_key' then 'dedup_key' end,
           case when adopt_known.published_at is null
                 and adopt_known.topic is distinct from adopt_new.event ->> 'topic' then 'topic' end,
           case when adopt_known.payload -> 'version' <> coalesce(adopt_new.event -> 'version', '1')
                then 'version' end,
           case when adopt_new.event ? 'occurred_at'
                 and (adopt_known.payload ->> 'occurred_at')::timestamptz
                     <> (adopt_new.event ->> 'occurred_at')::timestamptz then 'occurred_at' end,
           case when adopt_known.attempt_count = 0
                 and adopt_known.available_at
                     <> coalesce((adopt_new.event ->> 'available_at')::timestamptz, '-infinity')
                then 'available_at' end,
           case when nullif(adopt_known.payload -> 'actor', 'null')
                     is distinct from nullif(adopt_new.event -> 'actor', 'null') then 'actor' end,
           case when adopt_known.payload -> 'data' <> adopt_new.event -> 'data' then 'data' end,
           case when adopt_known.attributes - array['traceparent', 'tracestate']
                     <> coalesce(nullif(adopt_new.event -> 'attributes', 'null'), '{{}}')
                        - array['traceparent', 'tracestate'] then 'attributes' end
       ], null) end,
       adopt_new.event ->> 'event_id',
       adopt_new.event ->> 'dedup_key',
       md5(adopt_new.event ->> 'ordering_key'),
       case when adopt_fault.fault is null
            then extract(epoch from (adopt_new.event ->> 'occurred_at')::timestamptz)::float8 end,
       coalesce({pending}, false)
  from (select * from {table} as {alias} where {chosen}) as {alias}
 cross join lateral ({event}) as adopt_new (event)
 cross join lateral (
     -- What the table itself would refuse: the message's size, measured only where it may be too large.
     select coalesce(
         outbox_fault(adopt_new.event),
         case when octet_length(adopt_new.event::text) > 9400000
               and 512 + octet_length(jsonb_build_object(
                       'event_id', '00000000-0000-0000-0000-000000000000',
                       'event_type', adopt_new.event -> 'event_type',
                       'version', coalesce(adopt_new.event -> 'version', '1'),
                       'occurred_at', '2000-01-01T00:00:00.000000Z',
                       'actor', adopt_new.event -> 'actor',
                       'data', adopt_new.event -> 'data')::text)
                   + octet_length(coalesce(adopt_new.event ->> 'attributes', '{{}}'))
                   + octet_length(adopt_new.event ->> 'event_type')
                   + octet_length(adopt_new.event ->> 'aggregate_type')
                   + octet_length(adopt_new.event ->> 'aggregate_id')
                   + coalesce(octet_length(adopt_new.event ->> 'ordering_key'), 0) > 9500000
              then 'makes a message of more than 9500000 bytes' end)
     ) as adopt_fault (fault)
  left join lateral (
      select * from outbox_events as adopt_same
       where adopt_same.event_id
             = case when adopt_fault.fault is null then (adopt_new.event ->> 'event_id')::uuid end
       union all
      select * from outbox_events as adopt_same
       where adopt_fault.fault is null and adopt_same.dedup_key = adopt_new.event ->> 'dedup_key'
       limit 1) as adopt_known on true
 order by {order}
