-- What the migrations create is there, and every index of the table can be used.
select wanted.kind, wanted.name, coalesce(found.usable, false) as usable, found.usable is not null as present
  from unnest(%(kinds)s::text[], %(names)s::text[]) with ordinality as wanted (kind, name, position)
  left join lateral (
       select bool_and(coalesce(i.indisvalid and i.indisready, true)) as usable
         from pg_class as c left join pg_index as i on i.indexrelid = c.oid
        where wanted.kind in ('table', 'index') and c.relname = wanted.name
          and c.relkind = any(case wanted.kind when 'table' then array['r', 'p'] else array['i', 'I'] end::"char"[])
          and c.relnamespace = to_regnamespace(%(schema)s)
       having count(*) > 0
        union all
       select true from pg_proc as p
        where wanted.kind = 'function' and p.proname = wanted.name and p.pronamespace = to_regnamespace(%(schema)s)
       having count(*) > 0
        union all
       select bool_and(t.tgenabled in ('O', 'A')) from pg_trigger as t join pg_class as c on c.oid = t.tgrelid
        where wanted.kind = 'trigger' and t.tgname = wanted.name and c.relnamespace = to_regnamespace(%(schema)s)
       having count(*) > 0) as found on true
 union all
select 'index', c.relname, false, true
  from pg_index as i join pg_class as c on c.oid = i.indexrelid
 where i.indrelid = to_regclass('outbox_events') and not (i.indisvalid and i.indisready)
   and c.relname <> all(%(names)s::text[])
