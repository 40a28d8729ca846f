-- Whether there is a schema of this name at all: a name that is mistyped needs no migration.
select exists (select from pg_namespace where nspname = %(schema)s)
