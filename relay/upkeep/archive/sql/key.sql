-- Rows are walked along the primary key: it is unique, without nulls, and has an index. Types may have an order of their own,
-- by operators that are found in their schema alone.
select a.attname as name,
       (select n.nspname
          from pg_opclass as c
          join pg_amop as o on o.amopfamily = c.opcfamily and o.amopstrategy = 5
                           and o.amoplefttype = c.opcintype and o.amoprighttype = c.opcintype
          join pg_operator as greater on greater.oid = o.amopopr
          join pg_namespace as n on n.oid = greater.oprnamespace
         where c.oid = (i.indclass::oid[])[k.place - 1]) as order_schema
  from pg_index as i
 cross join lateral unnest(i.indkey::smallint[]) with ordinality as k(attnum, place)
  join pg_attribute as a on a.attrelid = i.indrelid and a.attnum = k.attnum
 where i.indrelid = %(table)s and i.indisprimary and k.place <= i.indnkeyatts
 order by k.place
