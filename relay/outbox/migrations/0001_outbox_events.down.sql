-- An event that was promised is never dropped: the table goes only when nothing in it waits.
do $$
declare
    waiting bigint;
begin
    lock table outbox_events in access exclusive mode;
    select count(*) into waiting from outbox_events where published_at is null and failure_reason is distinct from 'discarded';
    if waiting > 0 then
        raise exception using
            errcode = 'object_in_use',
            message = format('outbox_events still holds %s event(s) that were not published', waiting),
            hint = 'Let the relay drain them, or discard the failed ones, and try again.';
    end if;
end
$$;

drop table outbox_events;
