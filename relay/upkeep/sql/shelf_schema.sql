-- What is put aside has a schema of its own.
create schema if not exists archive
