-- Events whose rows an operator had forgotten: what comes of them is nobody's fault.
select event_id::text from outbox_actions where action = 'remove'
