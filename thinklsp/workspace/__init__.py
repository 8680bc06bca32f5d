"""What a turn may see and change, as values; and the one gate to its files. Knows no tool and no LSP."""
