"""A loopback stand-in for the model services: it plays scenario files over HTTP and refuses what they refuse.

Reading order: `scenario` (the file format), `script` (which step answers, and with what), `dialect` (the seam, and an
answer as timed pieces), `server` (HTTP), `state` (what services keep and hand out), then `service` in one of the
packages of dialects. Nothing here reaches the network beyond 127.0.0.1, and no key is ever checked for worth.
"""
