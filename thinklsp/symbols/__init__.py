"""What a text defines, by syntax alone: text and language in, symbols out. No file, no clock, no event loop."""
