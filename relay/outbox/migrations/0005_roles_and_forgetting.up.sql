-- Whoever may execute outbox_emit stores events with the rights of the outbox's owner, and needs none on the table. So it
-- may be executed by those who could insert until now, and by nobody else: a right on the function alone was none to emit.
do $$
declare
    emit constant regprocedure := 'outbox_emit(jsonb)';
    events constant regclass := 'outbox_events';
    -- What it writes; a role that may write less of a row could never emit.
    written constant text[] := array['event_id', 'event_type', 'aggregate_type', 'aggregate_id', 'topic', 'ordering_key',
                                     'dedup_key', 'payload', 'attributes', 'available_at'];
    owner constant oid := (select relowner from pg_class where oid = events);
    revokes text[];
    grants text[];
    command text;
begin
    if owner <> (select proowner from pg_proc where oid = emit) then
        execute format('alter function outbox_emit(jsonb) owner to %I', pg_get_userbyid(owner));
    end if;
    select array_agg(format('revoke execute on function outbox_emit(jsonb) from %s cascade',
                            case grantee when 0 then 'public' else quote_ident(pg_get_userbyid(grantee)) end))
    into revokes
    from (select distinct (aclexplode(coalesce(proacl, acldefault('f', proowner)))).grantee
            from pg_proc where oid = emit) as executing
    where grantee <> owner;
    -- Those who could pass on the right still can; the right of everyone cannot be passed on.
    select array_agg(format('grant execute on function outbox_emit(jsonb) to %s%s',
                            case grantee when 0 then 'public' else quote_ident(pg_get_userbyid(grantee)) end,
                            case when grantable and grantee <> 0 then ' with grant option' end))
    into grants
    from (select grantee, bool_or(is_grantable) as grantable
            from (select (aclexplode(relacl)).* from pg_class where oid = events
                   union all
                  select (aclexplode(attacl)).* from pg_attribute where attrelid = events) as granted
           where privilege_type = 'INSERT'
           group by grantee) as inserting
    where grantee <> owner
      and (select bool_and(has_column_privilege(grantee, events, name, 'insert')) from unnest(written) as name);
    foreach command in array coalesce(revokes, '{}') || coalesce(grants, '{}') loop
        execute command;
    end loop;
end
$$;

-- Its names are looked up in the outbox's schema, whatever the caller's search_path; pg_temp comes last.
alter function outbox_emit(jsonb) security definer set search_path from current;

-- Rows that are forgotten were published, as a rule, and had not failed.
alter table outbox_actions
    alter failed_at drop not null,
    alter failure_reason drop not null,
    drop constraint outbox_actions_action,
    add constraint outbox_actions_action check (action in ('retry', 'discard', 'remove', 'redact')),
    add constraint outbox_actions_failed check (
        (failed_at is null) = (failure_reason is null)
        and (failed_at is not null or action in ('remove', 'redact')));

comment on table outbox_actions is 'What operators did to rows of outbox_events, by relay failed retry and discard, and relay forget. Rows are only ever added.';
