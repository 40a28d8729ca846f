-- A lock is given back by its holder alone, and its name takes no room any longer.
delete from inbox_locks where name = %(name)s and token = %(token)s::uuid returning name
