-- One command is one action, of however many rows; counting them ends at a limit.
select latest.action, latest.acted_at::text, latest.acted_by, latest.why,
       (select count(*) from (select from outbox_actions
                               where action_id = latest.action_id limit %(most)s) as counted) as rows
  from (select action_id, action, acted_at, acted_by, why from outbox_actions order by id desc limit 1) as latest
