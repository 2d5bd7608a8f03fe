"""What an operator sees: log lines and, later, metrics."""
