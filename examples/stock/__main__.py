"""`make example NAME=stock`: a shop sells, what runs low is ordered, and what recovers in time is not."""

import sys

import psycopg

from examples.programs import prepared, running, waited
from examples.stock.supplier import supplier
from relay.dev.stack import Part, Stack

PRODUCTS = 40
CONSUMER = ("consumers", "run", "examples.stock.purchasing:purchasing")
STOCK = "insert into stock (sku, qty, threshold) select 'p' || n, 12, 10 from generate_series(1, %s) as n"
LEFT = "select count(*) from outbox_events where published_at is null"
OPEN = "select count(*) from inbox_deliveries where state <> 'done'"
LOW = "select '/' || sku || '-' || crossing from stock where qty < threshold"
ORDERED = "select '/' || sku || '-' || crossing from orders"


def main() -> int:
    """Exit 0 when all that is low is on order, once, and nothing else."""
    with Stack.start([Part.POSTGRES]) as stack, supplier() as (url, orders):
        environment = prepared(stack.database_url, "stock", SUPPLIER_URL=url)
        with psycopg.connect(stack.database_url, autocommit=True) as shop:
            sell(shop)
            print(f"{PRODUCTS} products ran low, and some have recovered")
            with running(environment, *CONSUMER):
                settled = waited(lambda: is_settled(shop))
            low, ordered = ({name for (name,) in shop.execute(query)} for query in (LOW, ORDERED))
    print(f"{len(ordered)} are on order")
    return 0 if settled and low == ordered == set(orders) else 1


def sell(shop: psycopg.Connection) -> None:
    """Have something of everything, and sell three, one by one; then some are delivered."""
    shop.execute(STOCK, [PRODUCTS])
    for _ in range(3):
        shop.execute("update stock set qty = qty - 1")
    shop.execute("update stock set qty = qty + 20 where sku ~ '[048]$'")


def is_settled(shop: psycopg.Connection) -> bool:
    """Whether all that has happened is dealt with: no event is on its way, and no delivery is open."""
    return shop.execute(LEFT).fetchone() == (0,) == shop.execute(OPEN).fetchone()


if __name__ == "__main__":
    sys.exit(main())
