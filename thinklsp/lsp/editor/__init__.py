"""The editor as one connection knows it: what it can, what it has open, what is asked of it and told to it."""
