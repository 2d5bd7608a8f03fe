"""Transactions: their states, their log, and the shard that coordinates them."""
