"""The turns that run: started under the token rule, shown while they run, answered at their end."""
