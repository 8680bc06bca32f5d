"""Open documents: their text, places in it, and what stands there."""
