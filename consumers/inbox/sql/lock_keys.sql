-- Of an ordering key one claim at a time: of two at once each could find another delivery to be the first.
-- Sorted, because two that lock the same keys in another order deadlock. In a statement of its own: the claim behind it
-- sees what was committed while it waited.
select pg_advisory_xact_lock(key)
  from (
       select distinct hashtextextended(consumer || ' ' || ordering_key, 0) as key
         from inbox_deliveries
        where id = any (%(ids)s::bigint[]) and ordering_key is not null
        order by key
       ) as keys
