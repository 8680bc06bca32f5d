"""The face to editors: the only package that knows LSP. What is imported before `initialize` is answered is light."""
