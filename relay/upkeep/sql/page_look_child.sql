-- Months of what goes along have their places, too, before it goes.
,
       array(select distinct {month}::text
               from mover_page
               join {child} on {child}.{column} operator({order}.=) mover_page.key_1
              where mover_page.is_over and {age} >= '0001-01-01' and {age} < '9999-01-01')
