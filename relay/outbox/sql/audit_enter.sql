-- Names hold for this transaction alone: behind a pooler the session belongs to others.
select set_config('search_path', %(search_path)s, true)
