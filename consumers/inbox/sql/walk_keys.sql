-- Of a key the first unfinished delivery may go, and only while nobody has it or another of its key: what was put back,
-- or came late, is before others by its sequence, and waits for the one that is worked on.
-- One of another part is not ready here: whoever is to claim it may be long about it, and others would wait behind it.
-- A plain read of the index, key by key from where the last walk ended; whoever claims what it found locks it by its id.
with recursive keys as (
    (
        select ordering_key
          from inbox_deliveries
         where consumer = %(consumer)s and ordering_key > %(after)s and state in ('pending', 'processing')
         order by ordering_key
         limit 1
    )
    union all
    select (
        select ordering_key
          from inbox_deliveries
         where consumer = %(consumer)s and ordering_key > keys.ordering_key and state in ('pending', 'processing')
         order by ordering_key
         limit 1
    )
      from keys
     where keys.ordering_key is not null
), visited as (
    select ordering_key from keys where ordering_key is not null limit %(most)s
)
select visited.ordering_key, head.id, head.event_type,
       head.state = 'pending' and not head.suspect and mod(head.shard, %(shards)s) = %(shard)s
       and head.available_at <= statement_timestamp() + make_interval(secs => %(skew)s) as ready,
       extract(epoch from head.available_at - (statement_timestamp() + make_interval(secs => %(skew)s)))::float8 as due_in
  from visited
 cross join lateral (
       select id, event_type, state, suspect, shard, available_at
         from inbox_deliveries
        where consumer = %(consumer)s and ordering_key = visited.ordering_key and state in ('pending', 'processing')
        order by state = 'pending', sequence, id
        limit 1
       ) as head
