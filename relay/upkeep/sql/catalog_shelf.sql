-- An archived table says whose rows it has, and by which column they are told apart; its months, what no row may lack.
select (select count(*) > 0 from pg_namespace where nspname = 'archive') as has_schema,
       relation.oid::bigint as oid,
       obj_description(relation.oid, 'pg_class') as origin,
       (select array_agg(attribute.attname::text)
          from pg_partitioned_table as parted
          join pg_attribute as attribute
            on attribute.attrelid = parted.partrelid and attribute.attnum = any(parted.partattrs::int2[])
         where parted.partrelid = relation.oid and parted.partstrat = 'r' and parted.partnatts = 1) as parted_by,
       array(select month.relname::text
               from pg_inherits
               join pg_class as month on month.oid = inhrelid
              where inhparent = relation.oid and not inhdetachpending) as months,
       array(select distinct attribute.attname::text
               from pg_inherits
               join pg_attribute as attribute on attribute.attrelid = inhrelid and attribute.attnum > 0
              where inhparent = relation.oid and not inhdetachpending
                and attribute.attnotnull and not attribute.attisdropped
              order by 1) as demanded
  from (values (%(name)s::text)) as wanted(name)
  left join pg_class as relation
    on relation.relname = wanted.name
   and relation.relnamespace = (select oid from pg_namespace where nspname = 'archive')
