"""Oncelog beside Apache Kafka on the same machine, in the same run, with the same client.

`python -m bench` (or `make bench`) starts both on loopback, measures them in turns, and prints ratios.
Each kind of row has its own file in `bench/rows`; `bench/table.py` knows what a row is and when its
target is met, and `bench/turns.py` who is measured when.
"""
