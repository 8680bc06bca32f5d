-- The bytes of images in prompts, once per session and content. The digest is their SHA-256, which messages contain.
CREATE TABLE image (
    session TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    digest TEXT NOT NULL,
    content BLOB NOT NULL,
    PRIMARY KEY (session, digest)
);
