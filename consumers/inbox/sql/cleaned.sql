-- What was created before this may have been handled and cleaned away since, whatever the retention was then.
select greatest(
           (select (position ->> 'until')::float8 from inbox_checkpoints
             where consumer = %(consumer)s and name = %(name)s),
           extract(epoch from statement_timestamp() + make_interval(secs => %(skew)s))::float8 - %(retention)s::float8
       )
