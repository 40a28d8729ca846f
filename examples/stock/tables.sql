create table stock (
  sku text primary key, qty integer not null, threshold integer not null,
  crossing integer not null default 0  -- how often it has fallen below its threshold
);
create table orders (
  sku text not null, crossing integer not null, qty integer not null, primary key (sku, crossing)
);

create function stock_crosses() returns trigger language plpgsql as $$
begin
  new.crossing := new.crossing + 1;
  return new;
end
$$;
create trigger stock_crosses before update of qty, threshold on stock
  for each row when (old.qty >= old.threshold and new.qty < new.threshold) execute function stock_crosses();

-- Every change of a product that is low is an event: of several, the last one is still so, and the others are skipped.
create function stock_low() returns trigger language plpgsql as $$
begin
  perform outbox_emit(jsonb_build_array(jsonb_build_object(
    'event_type', 'stock.low', 'aggregate_type', 'stock', 'aggregate_id', new.sku,
    'data', jsonb_build_object(
      'sku', new.sku, 'watched', jsonb_build_object('qty', new.qty, 'crossing', new.crossing)))));
  return null;
end
$$;
create trigger stock_low after update of qty, threshold on stock
  for each row when (new.qty < new.threshold and (new.qty <> old.qty or new.threshold <> old.threshold))
  execute function stock_low();
