-- A reconciliation goes on with what was stored in this transaction, and with how many that were, or not at all.
update inbox_checkpoints
   set position = %(position)s::text::jsonb
                  || jsonb_build_object('stored', %(stored)s + new.count, 'missing', %(missing)s + new.count),
       finished = %(finished)s,
       updated_at = statement_timestamp() + make_interval(secs => %(skew)s)
  from (
       select count(*)
         from unnest(%(event_ids)s::uuid[]) as asked(event_id)
        where exists (
              select from inbox_deliveries as delivery
               where delivery.consumer = %(consumer)s and delivery.event_id = asked.event_id
                 and delivery.xmin = pg_current_xact_id()::xid
              )
       ) as new
 where inbox_checkpoints.consumer = %(consumer)s and name = %(name)s and position = %(before)s::text::jsonb
returning position::text
