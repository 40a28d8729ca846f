-- An event that was promised is never dropped: the table goes only when nothing in it waits.
do $$
declare
    waiting record;
begin
    lock table outbox_events in access exclusive mode;
    select count(*) as total,
           count(*) filter (where failed_at is null and ordering_key is null and available_at = '-infinity') as pending,
           count(*) filter (where failed_at is null and ordering_key is null and available_at > '-infinity') as scheduled,
           count(*) filter (where failed_at is null and ordering_key is not null) as ordered,
           count(*) filter (where failed_at is not null) as failed
    into waiting
    from outbox_events where published_at is null and failure_reason is distinct from 'discarded';
    if waiting.total > 0 then
        raise exception using
            errcode = 'object_in_use',
            message = format('outbox_events still holds %s event(s) that were not published', waiting.total),
            hint = format('Let the relay drain them, and try again: %s pending, %s scheduled, %s with an ordering_key '
                          '(not relayed by this release). %s failed and count until they are discarded: '
                          'update outbox_events set failure_reason = ''discarded'', blocks_key = false '
                          'where failed_at is not null. Nothing was changed.',
                          waiting.pending, waiting.scheduled, waiting.ordered, waiting.failed);
    end if;
end
$$;

drop table outbox_events;
drop function outbox_size(jsonb, jsonb, text, text, text, text);
