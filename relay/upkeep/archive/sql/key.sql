-- Rows are walked along the primary key: it is unique, without nulls, and has an index.
select a.attname as name
  from pg_index as i
 cross join lateral unnest(i.indkey::smallint[]) with ordinality as k(attnum, place)
  join pg_attribute as a on a.attrelid = i.indrelid and a.attnum = k.attnum
 where i.indrelid = %(table)s and i.indisprimary and k.place <= i.indnkeyatts
 order by k.place
