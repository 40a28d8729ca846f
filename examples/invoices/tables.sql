create table orders (
  id       bigint generated always as identity primary key,
  event_id uuid not null default gen_random_uuid(),  -- of the order.placed that announces it
  address  text,
  cents    integer not null
);
create table invoices (
  order_id bigint primary key references orders,
  pdf      bytea not null
);
