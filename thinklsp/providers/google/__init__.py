"""Support for Gemini's generateContent API and for compatible servers."""
