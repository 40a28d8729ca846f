-- Of several that begin a walk one does.
insert into inbox_checkpoints (consumer, name, position, updated_at)
values (%(consumer)s, %(name)s, %(position)s::text::jsonb, statement_timestamp() + make_interval(secs => %(skew)s))
on conflict (consumer, name) do nothing
returning position::text
