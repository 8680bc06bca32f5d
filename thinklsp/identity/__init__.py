"""The identification of clients by tokens of an OpenID Connect provider, for `thinklsp --ws` with `[serve.oidc]`."""
