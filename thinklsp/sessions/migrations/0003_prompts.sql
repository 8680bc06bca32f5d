-- Prompts that no step has answered, as JSON: the user's own words, and how their turns ended.
ALTER TABLE session ADD COLUMN prompts TEXT NOT NULL DEFAULT '[]';
