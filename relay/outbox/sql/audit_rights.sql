-- A role that audits may read of the record which events were removed, or nothing of it.
select has_column_privilege('outbox_actions', 'event_id', 'select')
       and has_column_privilege('outbox_actions', 'action', 'select') as may_read_actions
