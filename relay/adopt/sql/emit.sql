-- Chosen rows are stored in their order, each once: one whose event is in the outbox already is not stored again.
select count(*) filter (where inserted)
  from outbox_emit(coalesce((
       select jsonb_agg(adopt_new.event order by {order})
         from (select * from {table} as {alias} where {chosen}) as {alias}
        cross join lateral ({event}) as adopt_new (event)
        where {unknown}), '[]'))
