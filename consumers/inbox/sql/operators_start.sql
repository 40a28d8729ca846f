-- One moment for a whole command, by the database's clock, and the role that asks: what changes later is not meant by it.
select statement_timestamp() + make_interval(secs => %(skew)s), session_user::text
