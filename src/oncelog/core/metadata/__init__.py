"""Topics, settings, features and producer ids: the shard that says what there is."""
