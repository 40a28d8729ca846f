-- One moment and one id for a whole command, by the database's clock: rows that fail later are not meant by it.
select clock_timestamp(), outbox_uuid7(clock_timestamp()), session_user::text
