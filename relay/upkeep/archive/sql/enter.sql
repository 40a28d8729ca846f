-- What a value is written as depends on the session: it is the same in each, and lasts as long as the transaction.
select set_config('search_path', %(search_path)s, true),
       set_config('datestyle', 'ISO, YMD', true),
       set_config('intervalstyle', 'postgres', true),
       set_config('timezone', 'UTC', true),
       set_config('extra_float_digits', '1', true),
       set_config('bytea_output', 'hex', true),
       set_config('lc_monetary', 'C', true),
       set_config('xmloption', 'content', true),
       set_config('standard_conforming_strings', 'on', true),
       set_config('row_security', 'off', true),
       set_config('statement_timeout', '0', true),
       set_config('lock_timeout', %(lock_timeout)s, true)
