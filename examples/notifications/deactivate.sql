-- Nothing more is sent to these phones; whoever deactivates the same ones waits, in one order for all.
update phones set active = false
 where token in (select token from phones where token = any(%s) and active order by token for update)
