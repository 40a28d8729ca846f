-- A walk goes on from where whoever says so has seen it, and from nowhere else.
update inbox_checkpoints
   set position = %(position)s::text::jsonb, finished = %(finished)s,
       updated_at = statement_timestamp() + make_interval(secs => %(skew)s)
 where consumer = %(consumer)s and name = %(name)s and position = %(before)s::text::jsonb
returning position::text
