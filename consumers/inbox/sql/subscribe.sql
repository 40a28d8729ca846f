-- What a consumer receives only grows: of an old and a new release side by side, neither takes anything from the other.
insert into inbox_subscribers as known (consumer, patterns)
values (%(consumer)s, %(patterns)s::text[])
on conflict (consumer)
do update set patterns = array(select distinct pattern
                                 from unnest(known.patterns || excluded.patterns) as pattern
                                order by pattern)
 where not known.patterns @> excluded.patterns
returning consumer
