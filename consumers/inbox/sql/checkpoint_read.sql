-- How far a walk has come, and how long ago that was written.
select position::text, finished,
       extract(epoch from statement_timestamp() + make_interval(secs => %(skew)s) - updated_at)::float8
  from inbox_checkpoints
 where consumer = %(consumer)s and name = %(name)s
