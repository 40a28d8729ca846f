-- Names and limits hold for this transaction alone: behind a pooler the session belongs to others.
-- Who emits to the same key may be waited for, but not for ever.
select set_config('search_path', %(search_path)s, true),
       set_config('lock_timeout', '30s', true),
       set_config('statement_timeout', '60s', true),
       set_config('idle_in_transaction_session_timeout', '60s', true)
