"""`make example NAME=orders`: the service, a relay and the consumer on embedded servers; orders, and their invoices."""

import os
import subprocess
import sys
import time
from contextlib import ExitStack

import httpx
import psycopg

from examples.orders.service import TABLES
from examples.programs import running, served
from relay.dev.prepare import prepare
from relay.dev.stack import Stack

ORDERS = 100
PATIENCE_SECONDS = 60.0
SERVICE = "examples.orders.service:service"
RELAY = ("relay", "run")
CONSUMER = "examples.orders.billing:billing"
BILLING = ("consumers", "run", CONSUMER)


def main() -> int:
    """Exit 0 when every order has its invoice."""
    with Stack.start() as stack, ExitStack() as processes:
        environment = prepared(stack)
        for program in (RELAY, BILLING):
            processes.enter_context(running(environment, *program))
        with served(environment, SERVICE) as url, httpx.Client(base_url=url) as customer:
            numbers = [order(customer, number) for number in range(ORDERS)]
            print(f"{len(numbers)} orders were placed")
            billed = sum(invoiced(customer, number) for number in numbers)
    print(f"{billed} of them have their invoice")
    return 0 if billed == ORDERS else 1


def prepared(stack: Stack) -> dict[str, str]:
    """Tables, the topic with its subscription, and where dead letters go; the environment of all programs."""
    prepare(stack, "public", "orders", "billing")
    with psycopg.connect(stack.database_url) as database:
        database.execute(TABLES)
    quiet = {"RELAY_LOG_LEVEL": "warning", "CONSUMERS_LOG_LEVEL": "warning"}
    environment = {**os.environ, **stack.environment, **quiet, "RELAY_TOPIC": "orders"}
    subprocess.run([sys.executable, "-m", "consumers", "dead-letters", "create", CONSUMER], env=environment, check=True)
    return environment


def order(customer: httpx.Client, number: int) -> int:
    """Place an order, and answer with its number."""
    answer = customer.post("/orders", json={"customer": f"c-{number % 7}", "cents": 100 + number}, timeout=30)
    answer.raise_for_status()
    return int(answer.json()["order_id"])


def invoiced(customer: httpx.Client, number: int) -> bool:
    """Wait for the invoice of an order."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while customer.get(f"/orders/{number}/invoice").status_code != httpx.codes.OK:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


if __name__ == "__main__":
    sys.exit(main())
