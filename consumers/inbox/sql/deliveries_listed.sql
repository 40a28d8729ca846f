-- A page is what of these was wanted; how many were looked at, and how far that reached, is told with each row of it.
select reached.rows, reached.last, listed.*
  from (
       select count(*) as rows, max(id * %(way)s::bigint) * %(way)s::bigint as last from found
       ) as reached
  left join lateral (
       select id, consumer, event_id::text, recipient, event_type, ordering_key, status, outcome, attempt_count,
              error_code, error,
              extract(epoch from statement_timestamp() + make_interval(secs => %(skew)s) - created_at)::float8 as age,
              case when state in ('pending', 'sent')
                   then extract(epoch from available_at
                                           - (statement_timestamp() + make_interval(secs => %(skew)s)))::float8
                   end as due_in,
              created_at::text, available_at::text, finished_at::text
         from wanted
        order by id * %(way)s::bigint
        limit %(rows)s
       ) as listed on true
