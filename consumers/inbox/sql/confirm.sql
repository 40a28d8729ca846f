-- Which of these their owners' transactions have ended: only what is committed can be seen.
select asked.id
  from unnest(%(ids)s::bigint[], %(tokens)s::uuid[]) as asked(id, token)
 where exists (
       select from inbox_deliveries where id = asked.id and token = asked.token and state <> 'processing'
       )
