-- Of what was found those are wanted that fit all of a filter; what is left open fits everything.
, wanted as (
    select delivery.*
      from found
     cross join lateral (
           select *,
                  case when state = 'failed' and outcome = 'discarded' then 'discarded' else state end as status
             from inbox_deliveries
            where id = found.id
           offset 0
           ) as delivery
     where delivery.consumer = any (%(consumers)s::text[])
       and (%(states)s::text[] = '{}' or delivery.status = any (%(states)s::text[]))
       and (
           (%(types)s::text[] = '{}' and %(prefixes)s::text[] = '{}')
           or delivery.event_type = any (%(types)s::text[])
           or exists (
              select from unnest(%(prefixes)s::text[]) as beginning(prefix)
               where starts_with(delivery.event_type, beginning.prefix)
              )
           )
       and (%(codes)s::text[] = '{}' or delivery.error_code = any (%(codes)s::text[]))
       and (%(key)s::text is null or delivery.ordering_key = %(key)s::text)
       and (%(recipient)s::text is null or delivery.recipient = %(recipient)s::text)
       and (%(error)s::text is null or strpos(lower(delivery.error), lower(%(error)s::text)) > 0)
       and (
           %(since)s::timestamptz is null
           or coalesce(delivery.finished_at, delivery.created_at) >= %(since)s::timestamptz
           )
       and (
           %(until)s::timestamptz is null
           or coalesce(delivery.finished_at, delivery.created_at) <= %(until)s::timestamptz
           )
)
