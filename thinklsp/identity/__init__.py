"""Identifies clients by tokens from an OpenID Connect provider, for `thinklsp --ws` with `[serve.oidc]`."""
