"""The conversations that are kept: frozen sessions with pure transitions, and the store that owns them."""
