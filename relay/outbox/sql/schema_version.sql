-- What the database has, not what this code knows.
select coalesce(max(version), 0) as version from outbox_migrations
