-- The row whose ids are the arguments is stored by outbox_emit if it waits, and unless the outbox has its event.
select adopt_new.pending,
       case when adopt_new.pending and {unknown} then (
           select adopt_stored.sequence from outbox_emit(jsonb_build_array(adopt_new.event)) as adopt_stored
       ) end
  from (select coalesce({pending}, false) as pending, adopt_mapped.event
          from (select * from {table} as {alias} where {row} = ({numbers})) as {alias}
         cross join lateral ({event}) as adopt_mapped (event)) as adopt_new
