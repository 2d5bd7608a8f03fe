"""`oncelog demo`: a stream of orders, a Spark pipeline, three kills, and an audit."""
