-- Nobody else changes these rows meanwhile: this transaction has locked them. Each is looked up by its id.
select event.id, payload, nullif(attributes, '{}')
  from unnest(%(ids)s::bigint[]) as wanted (id)
  join outbox_events as event on event.id between wanted.id and wanted.id
