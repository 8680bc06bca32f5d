"""The boundary to the client: frames in, checked messages to the handlers, exactly one reply each, frames out."""
