-- What services have refused, and what they get instead. Without a session: it holds for every conversation with the
-- model. With one: for as long as the session begins with the same messages, as many as it had then.
CREATE TABLE remedy (
    service TEXT NOT NULL,
    model TEXT NOT NULL,
    session TEXT REFERENCES session (id) ON DELETE CASCADE,
    kind TEXT NOT NULL,
    refused TEXT NOT NULL,
    instead TEXT NOT NULL,
    messages INTEGER NOT NULL,
    made INTEGER NOT NULL
);
CREATE INDEX remedy_by_service ON remedy (service);
CREATE INDEX remedy_by_session ON remedy (session);
