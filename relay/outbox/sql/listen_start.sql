-- Channel and lock are those of one table, also where several schemas of a database hold an outbox.
select relation::bigint, 'outbox_' || relation as channel
  from (select to_regclass(%(relation)s)::oid as relation) as found
 where relation is not null
