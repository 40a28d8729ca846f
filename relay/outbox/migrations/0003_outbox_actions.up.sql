-- What operators did to failed rows: one entry for each row, written in the transaction that changed the row.
create table outbox_actions (
    id              bigint generated always as identity (cache 1) primary key,
    -- One command has one of these, whatever the number of its rows and transactions.
    action_id       uuid not null,
    action          text not null,
    acted_at        timestamptz not null default clock_timestamp(),
    -- Who said to be acting, and the role that the database knows to have acted.
    acted_by        text not null,
    acted_as        text not null default session_user,
    why             text,
    -- The row of outbox_events. No foreign key: what was done to a row is known for longer than the row is kept.
    row_id          bigint not null,
    event_id        uuid not null,
    event_type      text not null,
    -- The state that the action ended.
    failed_at       timestamptz not null,
    failure_reason  text not null,
    attempt_count   integer not null,
    last_error_code text,

    constraint outbox_actions_action check (action in ('retry', 'discard')),
    constraint outbox_actions_acted_by check (char_length(acted_by) between 1 and 255),
    constraint outbox_actions_why check (char_length(why) between 1 and 1024 and (action <> 'discard' or why is not null))
);

create index outbox_actions_row on outbox_actions (row_id, id);
create index outbox_actions_of_one_command on outbox_actions (action_id);

comment on table outbox_actions is 'What operators did to failed rows of outbox_events, by relay failed retry and discard. Rows are only ever added.';

-- Both are empty while nothing fails, and cost a row that is published at its first attempt nothing.
-- Pending rows that have failed before.
create index outbox_events_retrying on outbox_events (id)
    where published_at is null and failed_at is null and attempt_count > 0;
-- Failed rows about which nobody has decided yet; those that were discarded are in outbox_events_failed_rows alone.
create index outbox_events_unresolved on outbox_events (failed_at, id)
    where failed_at is not null and failure_reason <> 'discarded';
