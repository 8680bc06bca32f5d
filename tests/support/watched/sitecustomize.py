"""Watches the event loop of a server that has this folder on PYTHONPATH."""

from tests.support.loop_watch import watch

watch()
