-- What each user and each team has spent in a day or in a month, and what the running model calls may still cost.
-- Budgets of teams concern several users, so functions of the owner read and write these rows.
CREATE TABLE spending (
    tenant TEXT NOT NULL,
    scope TEXT NOT NULL CHECK (scope IN ('user', 'team')),
    name TEXT NOT NULL,
    period TEXT NOT NULL,
    spent_usd DOUBLE PRECISION NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, scope, name, period)
);
ALTER TABLE spending ENABLE ROW LEVEL SECURITY;
ALTER TABLE spending FORCE ROW LEVEL SECURITY;
CREATE POLICY own_rows ON spending FOR SELECT USING (
    tenant = current_setting('thinklsp.tenant', true) AND scope = 'user' AND name = current_setting('thinklsp.user', true)
);
DO $$ BEGIN EXECUTE format('CREATE POLICY maintenance ON spending TO %I USING (true)', current_user); END $$;

-- A reservation belongs to the lease, so it ends with it.
ALTER TABLE lease ADD COLUMN reserved_usd DOUBLE PRECISION NOT NULL DEFAULT 0;
ALTER TABLE lease ADD COLUMN teams JSONB NOT NULL DEFAULT '[]';

-- Add the cost of a model call to the spending of its user and teams, in the transaction of its step. A copied session
-- brings old rows, which do not count again.
CREATE FUNCTION book_usage() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF NEW.made < (extract(epoch FROM clock_timestamp()) - 3600) * 1e9 THEN
        RETURN NULL;
    END IF;
    IF NEW.cost_usd > 0 THEN
        INSERT INTO spending AS total (tenant, scope, name, period, spent_usd)
        SELECT NEW.tenant, owner.scope, owner.name, times.period, NEW.cost_usd
        FROM (
            SELECT 'user' AS scope, NEW.account AS name
            UNION
            SELECT 'team', team
            FROM jsonb_array_elements_text(coalesce(current_setting('thinklsp.teams', true), '[]')::jsonb) AS team
        ) AS owner
        CROSS JOIN (SELECT NEW.day AS period UNION SELECT left(NEW.day, 7)) AS times
        ORDER BY 2, 3, 4
        ON CONFLICT (tenant, scope, name, period) DO UPDATE SET spent_usd = total.spent_usd + excluded.spent_usd;
    END IF;
    UPDATE lease SET reserved_usd = 0 WHERE tenant = NEW.tenant AND account = NEW.account AND session = NEW.session;
    RETURN NULL;
END $$;
CREATE TRIGGER usage_is_booked AFTER INSERT ON usage FOR EACH ROW EXECUTE FUNCTION book_usage();

-- Reserve the cost of the next model call of a session, if it exceeds none of the caps. `caps` is a JSON array of objects
-- with scope, name, period and usd. Returns no row, or the cap that would be exceeded with the amounts so far. The caller
-- has locked the row of its lease. The rows of spending are locked in one order, so calls at the same time wait for each
-- other.
CREATE FUNCTION reserve_budget(of_session TEXT, cost DOUBLE PRECISION, caps JSONB)
RETURNS TABLE (scope TEXT, name TEXT, period TEXT, spent DOUBLE PRECISION, reserved DOUBLE PRECISION)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    my_tenant TEXT := current_setting('thinklsp.tenant');
    my_account TEXT := current_setting('thinklsp.user');
    cap RECORD;
    spent_now DOUBLE PRECISION;
    reserved_now DOUBLE PRECISION;
BEGIN
    INSERT INTO spending (tenant, scope, name, period)
    SELECT my_tenant, c.scope, c.name, c.period
    FROM jsonb_to_recordset(caps) AS c (scope TEXT, name TEXT, period TEXT)
    ORDER BY 2, 3, 4
    ON CONFLICT DO NOTHING;
    PERFORM 1 FROM spending AS s JOIN jsonb_to_recordset(caps) AS c (scope TEXT, name TEXT, period TEXT)
        ON (s.tenant, s.scope, s.name, s.period) = (my_tenant, c.scope, c.name, c.period)
        ORDER BY s.scope, s.name, s.period FOR UPDATE OF s;
    FOR cap IN SELECT * FROM jsonb_to_recordset(caps) AS c (scope TEXT, name TEXT, period TEXT, usd DOUBLE PRECISION) LOOP
        SELECT s.spent_usd INTO spent_now FROM spending AS s
            WHERE (s.tenant, s.scope, s.name, s.period) = (my_tenant, cap.scope, cap.name, cap.period);
        SELECT coalesce(sum(l.reserved_usd), 0) INTO reserved_now FROM lease AS l
            WHERE l.tenant = my_tenant AND l.holder IS NOT NULL AND l.until > clock_timestamp()
            AND NOT (l.account = my_account AND l.session = of_session)
            AND CASE cap.scope WHEN 'user' THEN l.account = cap.name ELSE l.teams ? cap.name END;
        IF spent_now + reserved_now + cost > cap.usd THEN
            RETURN QUERY SELECT cap.scope, cap.name, cap.period, spent_now, reserved_now;
            RETURN;
        END IF;
    END LOOP;
    UPDATE lease AS l SET reserved_usd = cost, teams = coalesce(current_setting('thinklsp.teams', true), '[]')::jsonb
        WHERE l.tenant = my_tenant AND l.account = my_account AND l.session = of_session;
END $$;
REVOKE ALL ON FUNCTION reserve_budget(TEXT, DOUBLE PRECISION, JSONB) FROM PUBLIC;
