"""One module for each Kafka API: every version is lowered to one shape here, and raised again."""
