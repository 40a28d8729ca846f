"""`make example NAME=invoices`: the service, the consumer and a mail provider on an embedded Postgres."""

import sys

import httpx

from examples.programs import prepared, running, served, waited
from relay.dev.stack import Part, Stack

ORDERS = 20
SERVICE = "examples.invoices.service:service"
PROVIDER = "examples.invoices.provider:provider"
CONSUMER = ("consumers", "run", "examples.invoices.invoicing:invoices")
# What the service stores is found within so long, and a provider that fails is asked again so soon, and so often.
SETTINGS = {"INBOX_POLL_MS": "100ms", "INBOX_RETRY_BASE_MS": "200ms", "INBOX_MAX_ATTEMPTS": "10"}


def main() -> int:
    """Exit 0 when every order has its invoice and its email, but for the one that can have none."""
    with Stack.start([Part.POSTGRES]) as stack:
        environment = prepared(stack.database_url, "invoices", **SETTINGS)
        with (
            served(environment, PROVIDER) as mail,
            running({**environment, "MAIL_PROVIDER_URL": mail}, *CONSUMER),
            served(environment, SERVICE) as url,
            httpx.Client(base_url=url, timeout=40) as customer,
        ):
            numbers = [order(customer, f"{number} Main Street") for number in range(1, ORDERS + 1)]
            answers = [customer.get(f"/orders/{number}/invoice?waitMs=30000") for number in numbers]
            rendered = sum(answer.status_code == httpx.codes.OK for answer in answers)
            print(f"{rendered} of {ORDERS} orders have their invoice, such as this one:\n\n{answers[0].text}")
            refused = customer.get(f"/orders/{order(customer, None)}/invoice")
            print(f"an order without an address: {refused.status_code} {refused.text}")
            all_mailed = waited(lambda: len(httpx.get(f"{mail}/emails").json()) == ORDERS)
            print(f"{len(httpx.get(f'{mail}/emails').json())} emails were sent")
    return 0 if rendered == ORDERS and all_mailed and refused.is_client_error else 1


def order(customer: httpx.Client, address: str | None) -> int:
    """Place an order, and answer with its number."""
    return int(customer.post("/orders", json={"address": address, "cents": 1999}).raise_for_status().json()["order_id"])


if __name__ == "__main__":
    sys.exit(main())
