-- Nobody is told from here on.
select pg_advisory_unlock(2002873189, %(relation)s::oid::integer)
