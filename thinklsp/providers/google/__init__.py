"""Gemini by generateContent, and services that speak it."""
