"""A small client of the Kafka protocol: what the command line and the tests talk with."""
