"""The Messages API as the simulator plays it."""
