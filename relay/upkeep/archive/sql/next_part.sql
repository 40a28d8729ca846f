-- A part is numbered after all that the month ever had; whoever asks holds the lock of the table.
select coalesce(max(part), 0) + 1 from archive_exports where origin = %(origin)s and month = %(month)s
