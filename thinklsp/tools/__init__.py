"""The tools that a model can call. Tools read files through the workspace view and change only the turn's overlay."""
