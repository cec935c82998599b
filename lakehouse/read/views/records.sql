-- What was left out or redacted, and the present state of what is registered.

CREATE OR REPLACE VIEW redactions_by_type AS
WITH found AS (
    SELECT tenant_id, step_id, unnest(map_entries(redaction_counts)) AS entry FROM governance
)
SELECT tenant_id, entry.key AS entity_type, sum(entry.value)::BIGINT AS redactions,
       count(DISTINCT step_id) AS steps
FROM found GROUP BY ALL;
COMMENT ON VIEW redactions_by_type IS 'How much of which personal data was redacted';

-- Everything captured that is not stored, by why; an exchange with two reasons counts under both.
CREATE OR REPLACE VIEW left_out_by_reason AS
WITH reasoned AS (
    SELECT tenant_id, exchange_id, disposition,
           unnest(CASE WHEN len(reasons) = 0 THEN ['-'] ELSE reasons END) AS reason
    FROM exchanges WHERE disposition <> 'stored'
)
SELECT tenant_id, disposition, reason, count(*) AS exchanges FROM reasoned GROUP BY ALL;
COMMENT ON VIEW left_out_by_reason IS 'Exchanges that are not stored, by reason';

CREATE OR REPLACE VIEW substrates_latest AS
SELECT * FROM substrates
QUALIFY row_number() OVER (PARTITION BY name, version ORDER BY recorded_at DESC) = 1;
COMMENT ON VIEW substrates_latest IS 'The present state of each substrate version';

CREATE OR REPLACE VIEW runs_latest AS
SELECT * FROM runs
QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY recorded_at DESC) = 1;
COMMENT ON VIEW runs_latest IS 'The present state of each training run';

CREATE OR REPLACE VIEW models_latest AS
SELECT * FROM models
QUALIFY row_number() OVER (PARTITION BY name, version ORDER BY recorded_at DESC) = 1;
COMMENT ON VIEW models_latest IS 'The present state of each model version';
