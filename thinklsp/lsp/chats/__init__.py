"""Chat documents and their sessions, including parsing, prompts, answers, slash commands and completion."""
