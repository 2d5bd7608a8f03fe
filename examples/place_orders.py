"""A function that writes to two topics: both records, or neither.

    python examples/place_orders.py ada 12.50

An order goes to `orders` and what is to be paid to `payments`. Whatever fails in between, no reader of
committed records ever sees one without the other.
"""

import os
import sys
import uuid

import oncelog

SERVERS = os.environ.get("ONCELOG_BOOTSTRAP", "localhost:9092")

app = oncelog.App(
    SERVERS, transactional_id="shop", instance=os.environ.get("INSTANCE", "0"), concurrency=1
)


@app.transactional
def place_order(customer: str, total: float) -> str:
    order_id = uuid.uuid4().hex
    app.send("orders", {"id": order_id, "customer": customer, "total": total}, key=order_id)
    if total <= 0:
        raise ValueError(f"{total} is no price")  # the order above is taken back
    app.send("payments", {"order": order_id, "total": total}, key=customer)
    app.after_commit(lambda: print(f"order {order_id} is placed", file=sys.stderr))
    return order_id


if __name__ == "__main__":
    with app:
        print(place_order(sys.argv[1], float(sys.argv[2])))
