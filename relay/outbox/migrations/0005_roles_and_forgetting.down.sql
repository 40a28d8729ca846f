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
    drop constraint outbox_actions_failed,
    drop constraint outbox_actions_action,
    add constraint outbox_actions_action check (action in ('retry', 'discard')),
    alter failure_reason set not null,
    alter failed_at set not null;

-- The older function acts with the caller's rights: whoever may execute this one gets those that it needs.
alter function outbox_emit(jsonb) security invoker;
do $$
declare
    emitter record;
begin
    for emitter in
        select case grantee when 0 then 'public' else quote_ident(pg_get_userbyid(grantee)) end as name
          from (select distinct (aclexplode(proacl)).grantee, proowner
                  from pg_proc where oid = 'outbox_emit(jsonb)'::regprocedure) as executing
         where grantee <> proowner
    loop
        execute format('grant insert, select (id, event_id, dedup_key) on outbox_events to %s', emitter.name);
    end loop;
end
$$;
grant execute on function outbox_emit(jsonb) to public;
