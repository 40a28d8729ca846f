-- Ids are drawn in order and beyond every id that is there. last_value is null for roles that may not see it.
select s.oid::regclass::text as name, q.seqcache as cache, q.seqcycle as cycles, q.seqincrement as step,
       has_sequence_privilege(s.oid, 'select') as visible,
       case when has_sequence_privilege(s.oid, 'select') then pg_sequence_last_value(s.oid) end as last_value,
       (select max(id) from outbox_events) as greatest
  from pg_class as s
  join pg_depend as d on d.classid = 'pg_class'::regclass and d.objid = s.oid and d.deptype = 'i'
                     and d.refclassid = 'pg_class'::regclass and d.refobjid = 'outbox_events'::regclass
  join pg_sequence as q on q.seqrelid = s.oid
  join pg_attribute as a on a.attrelid = d.refobjid and a.attnum = d.refobjsubid and a.attname = 'id'
