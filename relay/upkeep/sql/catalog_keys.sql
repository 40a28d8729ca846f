-- What a table can be walked along: an index that has each of its rows once, in the order of its own columns. A type may have
-- an order of its own, by operators that are found in their schema alone.
select index.indisprimary as is_primary,
       array(select attribute.attname::text
               from unnest(index.indkey::int2[]) with ordinality as part(number, place)
               join pg_attribute as attribute on attribute.attrelid = index.indrelid and attribute.attnum = part.number
              where part.place <= index.indnkeyatts
              order by part.place) as columns,
       array(select space.nspname::text
               from unnest(index.indclass::oid[]) with ordinality as part(class, place)
               join pg_opclass as class on class.oid = part.class
               join pg_amop as member on member.amopfamily = class.opcfamily and member.amopstrategy = 5
                                     and member.amoplefttype = class.opcintype and member.amoprighttype = class.opcintype
               join pg_operator as greater on greater.oid = member.amopopr
               join pg_namespace as space on space.oid = greater.oprnamespace
              where part.place <= index.indnkeyatts
              order by part.place) as orders,
       -- By the session's own search_path, in which pages are read.
       (select bool_and(pg_operator_is_visible(member.amopopr))
          from unnest(index.indclass::oid[]) as used(oid)
          join pg_opclass as class on class.oid = used.oid
          join pg_amop as member on member.amopfamily = class.opcfamily
                                and member.amoplefttype = class.opcintype and member.amoprighttype = class.opcintype
       ) as are_found
  from pg_index as index
  join pg_class as relation on relation.oid = index.indexrelid
  join pg_am as method on method.oid = relation.relam and method.amname = 'btree'
 where index.indrelid = %(oid)s::bigint::oid
   and index.indisunique and index.indisvalid and index.indpred is null and index.indexprs is null
   and 0 = all (index.indoption::int2[])
   and not exists (select from unnest(index.indclass::oid[]) as used(oid)
                     join pg_opclass as class on class.oid = used.oid
                    where not class.opcdefault)
   and not exists (select from unnest(index.indkey::int2[], index.indcollation::oid[]) as part(number, rule)
                     join pg_attribute as attribute
                       on attribute.attrelid = index.indrelid and attribute.attnum = part.number
                    where part.rule <> attribute.attcollation)
 order by index.indisprimary desc, index.indexrelid
