"""The Google Gemini dialect: `service` is the way in."""
