-- The tables have the columns of the SQLite store in the same order. The columns after them have defaults, which come
-- from the settings of the transaction. Without these settings, no row is visible.
CREATE TABLE schema_version (
    version BIGINT PRIMARY KEY,
    applied TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
);

CREATE FUNCTION instr(bytea, bytea) RETURNS INTEGER LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN position($2 IN $1);

CREATE TABLE session (
    id TEXT NOT NULL,
    workspace TEXT NOT NULL,
    title TEXT NOT NULL,
    model TEXT NOT NULL,
    choices TEXT NOT NULL,
    steps BIGINT NOT NULL,
    unanswered BIGINT NOT NULL,
    interrupted BIGINT NOT NULL,
    undone BIGINT NOT NULL,
    input_tokens BIGINT,
    output_tokens BIGINT,
    thinking_tokens BIGINT,
    cache_read_tokens BIGINT,
    cache_write_tokens BIGINT,
    cost_usd DOUBLE PRECISION,
    messages BIGINT NOT NULL,
    size BIGINT NOT NULL,
    generation BIGINT NOT NULL,
    revision BIGINT NOT NULL,
    created BIGINT NOT NULL,
    updated BIGINT NOT NULL,
    prompts TEXT NOT NULL DEFAULT '[]',
    tenant TEXT NOT NULL DEFAULT current_setting('thinklsp.tenant'),
    account TEXT NOT NULL DEFAULT current_setting('thinklsp.user'),
    PRIMARY KEY (tenant, account, id)
);
CREATE INDEX session_by_workspace ON session (tenant, account, workspace, updated);
CREATE INDEX session_by_age ON session (tenant, account, updated);

CREATE TABLE message (
    session TEXT NOT NULL,
    generation BIGINT NOT NULL,
    sequence BIGINT NOT NULL,
    role TEXT NOT NULL,
    stop_reason TEXT,
    blocks BYTEA NOT NULL,
    crc BIGINT NOT NULL,
    tenant TEXT NOT NULL DEFAULT current_setting('thinklsp.tenant'),
    account TEXT NOT NULL DEFAULT current_setting('thinklsp.user'),
    PRIMARY KEY (tenant, account, session, generation, sequence),
    FOREIGN KEY (tenant, account, session) REFERENCES session ON DELETE CASCADE
);

CREATE TABLE origin (
    id TEXT NOT NULL,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    host TEXT NOT NULL,
    key TEXT NOT NULL,
    tenant TEXT NOT NULL DEFAULT current_setting('thinklsp.tenant'),
    account TEXT NOT NULL DEFAULT current_setting('thinklsp.user'),
    PRIMARY KEY (tenant, account, id)
);

CREATE TABLE opaque (
    session TEXT NOT NULL,
    generation BIGINT NOT NULL,
    sequence BIGINT NOT NULL,
    position BIGINT NOT NULL,
    origin TEXT NOT NULL,
    sealed BIGINT NOT NULL,
    content BYTEA NOT NULL,
    crc BIGINT NOT NULL,
    tenant TEXT NOT NULL DEFAULT current_setting('thinklsp.tenant'),
    account TEXT NOT NULL DEFAULT current_setting('thinklsp.user'),
    PRIMARY KEY (tenant, account, session, generation, sequence, position),
    FOREIGN KEY (tenant, account, session) REFERENCES session ON DELETE CASCADE
);

CREATE TABLE archive (
    id TEXT NOT NULL,
    session TEXT NOT NULL,
    generation BIGINT NOT NULL,
    kept BIGINT NOT NULL,
    messages BIGINT NOT NULL,
    steps BIGINT NOT NULL,
    note TEXT NOT NULL,
    made BIGINT NOT NULL,
    tenant TEXT NOT NULL DEFAULT current_setting('thinklsp.tenant'),
    account TEXT NOT NULL DEFAULT current_setting('thinklsp.user'),
    PRIMARY KEY (tenant, account, id),
    FOREIGN KEY (tenant, account, session) REFERENCES session ON DELETE CASCADE
);
CREATE INDEX archive_by_session ON archive (tenant, account, session, generation);

CREATE TABLE usage (
    session TEXT,
    turn TEXT NOT NULL,
    purpose TEXT NOT NULL,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    input_tokens BIGINT,
    output_tokens BIGINT,
    thinking_tokens BIGINT,
    cache_read_tokens BIGINT,
    cache_write_tokens BIGINT,
    cost_usd DOUBLE PRECISION,
    made BIGINT NOT NULL,
    day TEXT NOT NULL,
    tenant TEXT NOT NULL DEFAULT current_setting('thinklsp.tenant'),
    account TEXT NOT NULL DEFAULT current_setting('thinklsp.user')
);
CREATE INDEX usage_by_day ON usage (tenant, account, day);
CREATE INDEX usage_by_session ON usage (tenant, account, session);

CREATE TABLE ledger (
    edit TEXT NOT NULL,
    position BIGINT NOT NULL,
    session TEXT NOT NULL,
    workspace TEXT NOT NULL,
    turn TEXT NOT NULL,
    writer TEXT NOT NULL,
    uri TEXT NOT NULL,
    path TEXT NOT NULL,
    new_uri TEXT,
    kind TEXT NOT NULL,
    version BIGINT,
    before BYTEA,
    after BYTEA,
    before_sha256 TEXT,
    after_sha256 TEXT,
    outcome TEXT,
    undone BIGINT NOT NULL,
    made BIGINT NOT NULL,
    tenant TEXT NOT NULL DEFAULT current_setting('thinklsp.tenant'),
    account TEXT NOT NULL DEFAULT current_setting('thinklsp.user'),
    PRIMARY KEY (tenant, account, edit, position)
);
CREATE INDEX ledger_by_workspace ON ledger (tenant, account, workspace, made);
CREATE INDEX ledger_by_session ON ledger (tenant, account, session);

CREATE TABLE remedy (
    service TEXT NOT NULL,
    model TEXT NOT NULL,
    session TEXT,
    kind TEXT NOT NULL,
    refused TEXT NOT NULL,
    instead TEXT NOT NULL,
    messages BIGINT NOT NULL,
    made BIGINT NOT NULL,
    tenant TEXT NOT NULL DEFAULT current_setting('thinklsp.tenant'),
    account TEXT NOT NULL DEFAULT current_setting('thinklsp.user'),
    FOREIGN KEY (tenant, account, session) REFERENCES session ON DELETE CASCADE
);
CREATE INDEX remedy_by_service ON remedy (tenant, account, service);
CREATE INDEX remedy_by_session ON remedy (tenant, account, session);

CREATE TABLE image (
    session TEXT NOT NULL,
    digest TEXT NOT NULL,
    content BYTEA NOT NULL,
    tenant TEXT NOT NULL DEFAULT current_setting('thinklsp.tenant'),
    account TEXT NOT NULL DEFAULT current_setting('thinklsp.user'),
    PRIMARY KEY (tenant, account, session, digest),
    FOREIGN KEY (tenant, account, session) REFERENCES session ON DELETE CASCADE
);

-- The lease on a session, also on a new one that is not stored yet. Every change of the holder increments `fence`, and
-- every write of the holder updates `last_key` in its own transaction. `holder` is NULL after a release.
CREATE TABLE lease (
    session TEXT NOT NULL,
    fence BIGINT NOT NULL,
    holder TEXT,
    holder_name TEXT NOT NULL,
    until TIMESTAMPTZ NOT NULL,
    last_key TEXT NOT NULL DEFAULT '',
    tenant TEXT NOT NULL DEFAULT current_setting('thinklsp.tenant'),
    account TEXT NOT NULL DEFAULT current_setting('thinklsp.user'),
    PRIMARY KEY (tenant, account, session)
);

-- A user sees only the rows of the own tenant and account. The owner of the tables sees all rows for maintenance;
-- thinklsp refuses to keep sessions with this role.
DO $$
DECLARE name TEXT;
BEGIN
    FOREACH name IN ARRAY ARRAY[
        'session', 'message', 'origin', 'opaque', 'archive', 'usage', 'ledger', 'remedy', 'image', 'lease'
    ] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format(
            'CREATE POLICY own_rows ON %I USING ('
            'tenant = current_setting(''thinklsp.tenant'', true) AND account = current_setting(''thinklsp.user'', true))',
            name
        );
        EXECUTE format('CREATE POLICY maintenance ON %I TO %I USING (true)', name, current_user);
    END LOOP;
END $$;
