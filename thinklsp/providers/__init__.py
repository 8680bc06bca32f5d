"""Pure translation between our vocabulary and each service's wire: no clock, no randomness, no I/O."""
