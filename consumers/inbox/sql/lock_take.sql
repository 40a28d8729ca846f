-- A name has one holder at a time: another one gets it only when it was given back, or when its lease is over.
with taken as (
    insert into inbox_locks as held (name, token, expires_at)
    values (%(name)s, %(token)s::uuid, statement_timestamp() + make_interval(secs => %(skew)s::float8 + %(lease)s))
    on conflict (name)
    do update set token = excluded.token, expires_at = excluded.expires_at
        where held.token = excluded.token
           or held.expires_at <= statement_timestamp() + make_interval(secs => %(skew)s::float8)
    returning token
)
select exists (select from taken),
       coalesce((select greatest(0, extract(epoch from expires_at - (statement_timestamp() + make_interval(secs => %(skew)s::float8))))
                   from inbox_locks
                  where name = %(name)s), 0)::float8
