"""A local server that simulates the providers. It plays scenario files over HTTP and rejects invalid requests.

Read the modules in this order: `scenario` (the file format), `script` (choosing the step that answers a request),
`dialect` (the base class for simulated services), `rejections` (error messages and request shapes), `http_server`,
`service_state` (signatures and the prompt cache), and `service` in one of the packages for a service. The simulator
listens only on 127.0.0.1, opens no connections, and accepts any API key.
"""
