-- Whose owner died with it is claimed by itself: it is the caller's duty to run nothing beside it. Of those that were
-- found the first that nobody else has had, or one of its key, meanwhile.
with taken as (
    select held.id
      from unnest(%(ids)s::bigint[]) as found(id)
     cross join lateral (
           select id
             from inbox_deliveries as delivery
            where id = found.id
              and state = 'pending' and suspect
              and available_at <= statement_timestamp() + make_interval(secs => %(skew)s)
              and (
                  ordering_key is null
                  or id = (
                     select id
                       from inbox_deliveries as first
                      where first.consumer = delivery.consumer and first.ordering_key = delivery.ordering_key
                        and first.state in ('pending', 'processing')
                      order by first.state = 'pending', first.sequence, first.id
                      limit 1
                     )
                  )
              for update skip locked
           ) as held
     limit 1
)
