-- What happened to a delivery, in the order in which it was written.
select at::text, what, coalesce(detail::text, '')
  from inbox_history
 where delivery_id = %(id)s::bigint
 order by id
