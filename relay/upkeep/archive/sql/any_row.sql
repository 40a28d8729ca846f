-- A month counts where it has a row.
select exists (select from {table})
