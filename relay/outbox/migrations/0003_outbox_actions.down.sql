-- What operators did is not forgotten on the way: the table goes only when it is empty.
do $$
declare
    kept bigint;
begin
    lock table outbox_actions in access exclusive mode;
    select count(*) into kept from outbox_actions;
    if kept > 0 then
        raise exception using
            errcode = 'object_in_use',
            message = format('outbox_actions still holds %s record(s) of what operators did', kept),
            hint = 'Put them where you keep such records, and try again: '
                   'create table outbox_actions_kept as table outbox_actions; delete from outbox_actions. '
                   'Nothing was changed.';
    end if;
end
$$;

drop index outbox_events_unresolved;
drop index outbox_events_retrying;
drop table outbox_actions;
