-- Whoever may execute outbox_emit stores events with the rights of the outbox's owner, and needs none on the table. Its
-- search_path has been fixed since it was made. Those who could insert may execute; nobody else.
alter function outbox_emit(jsonb) security definer;
revoke execute on function outbox_emit(jsonb) from public;
do $$
declare
    emitter record;
begin
    for emitter in
        select distinct case grantee when 0 then 'public' else format('%I', pg_get_userbyid(grantee)) end as name
          from (select (aclexplode(relacl)).* from pg_class where oid = 'outbox_events'::regclass
                 union all
                select (aclexplode(attacl)).* from pg_attribute where attrelid = 'outbox_events'::regclass) as granted
         where privilege_type = 'INSERT'
    loop
        execute format('grant execute on function outbox_emit(jsonb) to %s', emitter.name);
    end loop;
end
$$;

-- Rows that are forgotten were published, as a rule, and had not failed; those that had neither were never published.
alter table outbox_actions
    add column published_at timestamptz,
    alter failed_at drop not null,
    alter failure_reason drop not null,
    drop constraint outbox_actions_action,
    drop constraint outbox_actions_why,
    add constraint outbox_actions_action check (action in ('retry', 'discard', 'remove', 'redact')),
    add constraint outbox_actions_why check (
        char_length(why) between 1 and 1024 and (action = 'retry' or why is not null)),
    add constraint outbox_actions_state check (
        (failed_at is null) = (failure_reason is null)
        and (failed_at is null or published_at is null)
        and (failed_at is not null or action in ('remove', 'redact')));

comment on table outbox_actions is 'What operators did to rows of outbox_events, by relay failed retry and discard, and relay forget. Rows are only ever added.';
