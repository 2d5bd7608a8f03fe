"""Clients that go on through every fault, and record all that they asked for and learnt."""
