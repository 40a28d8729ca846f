-- What of these was wanted is counted by what tells deliveries apart; how far it reached is told with each count.
select reached.rows, reached.last, counted.*
  from (
       select count(*) as rows, max(id * %(way)s::bigint) * %(way)s::bigint as last from found
       ) as reached
  left join lateral (
       select consumer, event_type, status, coalesce(error_code, ''), count(*) from wanted group by 1, 2, 3, 4
       ) as counted on true
