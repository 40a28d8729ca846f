-- A lock is renewed by its holder alone, also late, where nobody has taken it meanwhile.
update inbox_locks
   set expires_at = statement_timestamp() + make_interval(secs => %(skew)s::float8 + %(lease)s)
 where name = %(name)s and token = %(token)s::uuid
returning name
