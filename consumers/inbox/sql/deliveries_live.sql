-- What waits, runs, was sent or failed is found through the indexes of those states: what is done is not read.
with found as materialized (
    select each.id
      from unnest(%(consumers)s::text[]) as named(consumer)
     cross join lateral (
           select id
             from inbox_deliveries
            where %(pending)s::boolean
              and consumer = named.consumer and state = 'pending' and ordering_key is null and not suspect
           union all
           select id
             from inbox_deliveries
            where %(pending)s::boolean
              and consumer = named.consumer and state = 'pending' and ordering_key is null and suspect
           union all
           select id
             from inbox_deliveries
            where %(pending)s::boolean
              and consumer = named.consumer and state = 'pending' and ordering_key is not null
           union all
           select delivery_id from inbox_leases where %(processing)s::boolean and consumer = named.consumer
           union all
           select id from inbox_deliveries where %(sent)s::boolean and consumer = named.consumer and state = 'sent'
           union all
           select id
             from inbox_deliveries
            where %(failed)s::boolean
              and consumer = named.consumer and state = 'failed' and outcome <> 'discarded'
           union all
           select id
             from inbox_deliveries
            where %(discarded)s::boolean
              and consumer = named.consumer and state = 'failed' and outcome = 'discarded'
           ) as each
     where each.id * %(way)s::bigint > %(after)s::bigint * %(way)s::bigint
     order by each.id * %(way)s::bigint
     limit %(reach)s
)
