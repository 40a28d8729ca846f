-- An event is its event_id.
not exists (
    select from outbox_events as adopt_same
     where adopt_same.event_id = case when adopt_new.event ->> 'event_id' ~* '^[0-9a-f-]{{36}}$'
                                      then (adopt_new.event ->> 'event_id')::uuid end)
