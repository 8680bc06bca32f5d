"""The thinking loop: model calls, tools, prompts, compaction. Knows neither editors nor stores."""
