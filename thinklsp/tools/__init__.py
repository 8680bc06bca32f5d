"""The tools that a model sees. They read through the gate and change only the turn's overlay."""
