-- Children are found by an index, or a page would read all of them for each of its rows.
select exists (
           select from pg_index as index
             join pg_attribute as attribute
               on attribute.attrelid = index.indrelid and attribute.attnum = (index.indkey::int2[])[0]
            where index.indrelid = %(oid)s::bigint::oid and attribute.attname = %(column)s
              and index.indisvalid and index.indpred is null
       )
