-- Somebody who has one of the tables for himself is told from somebody who has a row.
lock table only {tables} in row exclusive mode
