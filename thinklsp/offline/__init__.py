"""The offline model, which plays scenario files. It needs no key and no network.

`service` answers requests in the form of Anthropic's Messages API. The engine calls it in process for the provider
`simulator`, and `OfflineServer` serves it over HTTP for `thinklsp simulate`.
"""
