"""Sessions, which are immutable values, and the session store."""
