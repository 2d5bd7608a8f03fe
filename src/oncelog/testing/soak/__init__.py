"""A long run of mixed load with kills: what the broker takes of the machine, and an audit at the end."""
