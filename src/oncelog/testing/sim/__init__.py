"""The real broker in one process under one seed: simulated time, disk and network."""
