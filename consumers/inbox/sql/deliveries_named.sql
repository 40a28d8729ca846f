-- Each delivery that is named by its id or its event is found once, whatever its state; one lookup a name.
with found as materialized (
    select each.id
      from (
           select named.id from unnest(%(ids)s::bigint[]) as named(id)
           union
           select delivery.id
             from unnest(%(consumers)s::text[]) as whose(consumer)
            cross join unnest(%(event_ids)s::uuid[]) as named(event_id)
            cross join lateral (
                  select id
                    from inbox_deliveries
                   where consumer = whose.consumer and event_id = named.event_id
                  ) as delivery
           ) as each
     where each.id * %(way)s::bigint > %(after)s::bigint * %(way)s::bigint
     order by each.id * %(way)s::bigint
     limit %(reach)s
)
