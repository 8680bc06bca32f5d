"""What turns want to change: merged, reviewed, sent, written down, taken back, and told of where it stands."""
