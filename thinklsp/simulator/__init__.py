"""A loopback stand-in for the model services: it plays scenario files over HTTP and refuses what they refuse.

Reading order: `scenario` (the file format), `script` (which step answers, and with what), `frames` (an answer as
timed pieces), `connection` and `server` (HTTP), `dialect` (the seam), `anthropic` (the first dialect, with its
`anthropic_*` modules). Nothing here reaches the network beyond 127.0.0.1, and no key is ever checked for worth.
"""
