"""OpenAI's Responses API as the simulator plays it: `service` answers, the rest checks, seals and counts."""
