"""How Postgres is spoken to, whatever is kept there: connections, statements out of files, a schema's versions."""
