-- A row is one event, in every statement by this text; what is null is absent.
select jsonb_object_agg(adopt_field.name, adopt_field.value)
  from (select {columns}) as adopt_row
 cross join lateral (values {fields}) as adopt_field (name, value)
 where adopt_field.value is not null
