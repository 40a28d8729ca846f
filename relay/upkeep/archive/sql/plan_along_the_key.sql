-- A sealed table may never have been analysed: without this, each page could be one sort of all rows.
select set_config('enable_seqscan', 'off', true),
       set_config('enable_sort', 'off', true),
       set_config('enable_bitmapscan', 'off', true),
       set_config('jit', 'off', true)
