"""Support for Anthropic's Messages API and for compatible servers."""
