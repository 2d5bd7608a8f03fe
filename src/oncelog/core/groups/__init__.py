"""Consumer groups: who reads which partition, and how far everyone has come."""
