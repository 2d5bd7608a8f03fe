"""A listener: every order becomes one invoice, whatever is killed on the way.

    oncelog app run examples/bill_orders.py:app

It reads `orders`, JSON such as {"id": "7", "customer": "ada", "total": 12.5}, and writes `invoices`. What is
no order goes to `orders-dead`, with the reason in its headers.
"""

import os

import oncelog
from oncelog.apps import Record

SERVERS = os.environ.get("ONCELOG_BOOTSTRAP", "localhost:9092")

app = oncelog.App(
    SERVERS, transactional_id="billing", instance=os.environ.get("INSTANCE", "0"), concurrency=0
)


@app.listener("orders", group="billing", workers=2, dead_letters="orders-dead", tries=3)
def bill(record: Record) -> None:
    order = record.json()
    tax = round(order["total"] * 0.2, 2)
    app.send(
        "invoices",
        {"order": order["id"], "total": order["total"], "tax": tax},
        key=order["customer"],
    )


if __name__ == "__main__":
    app.run()
