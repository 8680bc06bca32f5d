"""Chat documents and the sessions behind them: read, written, answered, completed."""
