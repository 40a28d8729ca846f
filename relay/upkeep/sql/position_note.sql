-- Walks over one table know nothing of each other: each notes its own position.
insert into {schedule} as schedule (name, position)
values ({name}, jsonb_build_object({walk}, {position}::jsonb))
    on conflict (name) do update
   set position = coalesce(schedule.position, '{{}}') || excluded.position, updated_at = clock_timestamp()
