"""OpenAI-compatible chat completions as the simulator plays them, in the manner of several servers."""
