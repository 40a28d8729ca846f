-- What was forgotten stays on record: the table goes back only when it holds nothing that the older one cannot.
do $$
declare
    kept bigint;
begin
    lock table outbox_actions in access exclusive mode;
    select count(*) into kept from outbox_actions where action in ('remove', 'redact');
    if kept > 0 then
        raise exception using
            errcode = 'object_in_use',
            message = format('outbox_actions still holds %s record(s) of rows that were forgotten', kept),
            hint = 'Put them where you keep such records, and try again: create table outbox_forgotten as select * from '
                   'outbox_actions where action in (''remove'', ''redact''); delete from outbox_actions where action in '
                   '(''remove'', ''redact''). Nothing was changed.';
    end if;
end
$$;

comment on table outbox_actions is 'What operators did to failed rows of outbox_events, by relay failed retry and discard. Rows are only ever added.';
alter table outbox_actions
    drop constraint outbox_actions_state,
    drop constraint outbox_actions_why,
    drop constraint outbox_actions_action,
    drop column published_at,
    add constraint outbox_actions_action check (action in ('retry', 'discard')),
    add constraint outbox_actions_why check (
        char_length(why) between 1 and 1024 and (action <> 'discard' or why is not null)),
    alter failure_reason set not null,
    alter failed_at set not null;

alter function outbox_emit(jsonb) security invoker;
grant execute on function outbox_emit(jsonb) to public;
