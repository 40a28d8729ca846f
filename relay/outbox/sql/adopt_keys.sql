-- Of each index that can be used: its columns in their order, and whether no two rows share them.
select (select coalesce(array_agg(attname::text order by place), '{}')
          from unnest(indkey::int2[]) with ordinality as key (attnum, place)
          join pg_attribute as named on named.attrelid = indrelid and named.attnum = key.attnum
         where place <= indnkeyatts),
       indisunique and indimmediate
  from pg_index
 where indrelid = %(table)s and indisvalid and indpred is null and indexprs is null
