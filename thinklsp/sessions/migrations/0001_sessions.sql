-- A session's messages stand under its present generation; a compaction begins a new one and leaves the old rows.
CREATE TABLE session (
    id TEXT PRIMARY KEY,
    workspace TEXT NOT NULL,
    title TEXT NOT NULL,
    model TEXT NOT NULL,
    choices TEXT NOT NULL,
    steps INTEGER NOT NULL,
    unanswered INTEGER NOT NULL,
    interrupted INTEGER NOT NULL,
    undone INTEGER NOT NULL,
    input_tokens INTEGER,
    output_tokens INTEGER,
    thinking_tokens INTEGER,
    cache_read_tokens INTEGER,
    cache_write_tokens INTEGER,
    cost_usd REAL,
    messages INTEGER NOT NULL,
    size INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL
);
CREATE INDEX session_by_workspace ON session (workspace, updated);
CREATE INDEX session_by_age ON session (updated);

CREATE TABLE message (
    session TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    generation INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    role TEXT NOT NULL,
    stop_reason TEXT,
    blocks BLOB NOT NULL,
    crc INTEGER NOT NULL,
    PRIMARY KEY (session, generation, sequence)
);

-- Who issued opaque state. The id is made of the other columns.
CREATE TABLE origin (
    id TEXT PRIMARY KEY,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    host TEXT NOT NULL,
    key TEXT NOT NULL
);

CREATE TABLE opaque (
    session TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    generation INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    position INTEGER NOT NULL,
    origin TEXT NOT NULL,
    sealed INTEGER NOT NULL,
    content BLOB NOT NULL,
    crc INTEGER NOT NULL,
    PRIMARY KEY (session, generation, sequence, position)
);

-- A conversation that was replaced by a shorter one, which had `kept` messages.
CREATE TABLE archive (
    id TEXT PRIMARY KEY,
    session TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    generation INTEGER NOT NULL,
    kept INTEGER NOT NULL,
    messages INTEGER NOT NULL,
    steps INTEGER NOT NULL,
    note TEXT NOT NULL,
    made INTEGER NOT NULL
);
CREATE INDEX archive_by_session ON archive (session, generation);

CREATE TABLE usage (
    session TEXT,
    turn TEXT NOT NULL,
    purpose TEXT NOT NULL,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    input_tokens INTEGER,
    output_tokens INTEGER,
    thinking_tokens INTEGER,
    cache_read_tokens INTEGER,
    cache_write_tokens INTEGER,
    cost_usd REAL,
    made INTEGER NOT NULL,
    day TEXT NOT NULL
);
CREATE INDEX usage_by_day ON usage (day);
CREATE INDEX usage_by_session ON usage (session);

CREATE TABLE ledger (
    edit TEXT NOT NULL,
    position INTEGER NOT NULL,
    session TEXT NOT NULL,
    workspace TEXT NOT NULL,
    turn TEXT NOT NULL,
    writer TEXT NOT NULL,
    uri TEXT NOT NULL,
    path TEXT NOT NULL,
    new_uri TEXT,
    kind TEXT NOT NULL,
    version INTEGER,
    before BLOB,
    after BLOB,
    before_sha256 TEXT,
    after_sha256 TEXT,
    outcome TEXT,
    undone INTEGER NOT NULL,
    made INTEGER NOT NULL,
    PRIMARY KEY (edit, position)
);
CREATE INDEX ledger_by_workspace ON ledger (workspace, made);
CREATE INDEX ledger_by_session ON ledger (session);
