-- The key of an encrypted session, encrypted itself with the key of its tenant. `tenant_key` is the id of that key. A
-- session without a row is not encrypted.
CREATE TABLE session_key (
    session TEXT NOT NULL,
    tenant_key TEXT NOT NULL,
    content BYTEA NOT NULL,
    tenant TEXT NOT NULL DEFAULT current_setting('thinklsp.tenant'),
    account TEXT NOT NULL DEFAULT current_setting('thinklsp.user'),
    PRIMARY KEY (tenant, account, session)
);
ALTER TABLE session_key ENABLE ROW LEVEL SECURITY;
ALTER TABLE session_key FORCE ROW LEVEL SECURITY;
CREATE POLICY own_rows ON session_key USING (
    tenant = current_setting('thinklsp.tenant', true) AND account = current_setting('thinklsp.user', true)
);
DO $$ BEGIN EXECUTE format('CREATE POLICY maintenance ON session_key TO %I USING (true)', current_user); END $$;
