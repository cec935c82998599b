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

CREATE OR REPLACE VIEW artifacts_latest AS
SELECT * FROM artifacts
QUALIFY row_number() OVER (PARTITION BY name, version ORDER BY recorded_at DESC) = 1;
COMMENT ON VIEW artifacts_latest IS 'The present state of each artefact version';

-- Feedback about a span of an answer, and where the span lies in the answer as it is stored. Redaction
-- put marks in place of what it found; the report says where, in the answer as it came. The span moves
-- with the text between the marks. It has no place where one of its ends lies in what was redacted.
CREATE OR REPLACE VIEW span_signals AS
WITH spans AS (
    SELECT p.*, s.output_message_id, s.output_tokens, s.capture_level
    FROM part.signals_in_force p
    JOIN steps s ON p.tenant_id = s.tenant_id AND p.trajectory_id = s.trajectory_id
                AND p.step_id = s.step_id
    WHERE p.span_unit IS NOT NULL
), answers AS (
    -- A step's text parts as one text, cut at the marks; the redacted lengths in the same order.
    SELECT s.*, g.redaction_report IS NOT NULL AS decided, m.parts IS NOT NULL AS stored,
           list_aggregate(list_transform(
               from_json(coalesce(m.parts, '[]'), '[{"type":"VARCHAR","text":"VARCHAR"}]'),
               lambda part: CASE WHEN part.type = 'text' THEN coalesce(part.text, '') ELSE '' END),
               'string_agg', '') AS answer,
           list_sort(list_transform(list_filter(
               from_json(json_extract(coalesce(g.redaction_report, '{}'), '$.places'), '[["VARCHAR"]]'),
               lambda place: regexp_full_match(place[2], '/output/parts/\d+/text')),
               lambda place: {part: regexp_extract(place[2], '\d+')::INT, begins: place[3]::INT,
                              ends: place[4]::INT})) AS places
    FROM spans s
    LEFT JOIN messages_once m
      ON s.tenant_id = m.tenant_id AND s.output_message_id = m.message_id
    LEFT JOIN governance_latest g ON s.tenant_id = g.tenant_id AND s.step_id = g.step_id
), cut AS (
    SELECT *, coalesce(answer, '') AS said, coalesce(places, []) AS gone,
           CASE WHEN len(coalesce(places, [])) = 0 THEN []
                ELSE regexp_extract_all(coalesce(answer, ''), '<[A-Z][A-Z0-9_]*(?:_[0-9a-f]+)?>')
           END AS marks
    FROM answers
), laid AS (
    -- Between the marks lie the pieces; each has its place in both texts.
    SELECT *, CASE WHEN len(marks) = 0 THEN [said]
                   ELSE string_split_regex(said, '<[A-Z][A-Z0-9_]*(?:_[0-9a-f]+)?>')
              END AS pieces
    FROM cut
), placed AS (
    SELECT *, list_transform(range(1, len(pieces) + 1), lambda n: {
               came: coalesce(list_sum(list_transform(pieces[1:n - 1], lambda piece: length(piece))), 0)
                   + coalesce(list_sum(list_transform(gone[1:n - 1], lambda one: one.ends - one.begins)), 0),
               lies: coalesce(list_sum(list_transform(pieces[1:n - 1], lambda piece: length(piece))), 0)
                   + coalesce(list_sum(list_transform(marks[1:n - 1], lambda mark: length(mark))), 0),
               size: length(pieces[n])}) AS segments
    FROM laid
), moved AS (
    SELECT *, list_filter(segments, lambda one: span_start BETWEEN one.came AND one.came + one.size
                                            AND span_start < one.came + one.size)[1] AS first_one,
           list_filter(segments, lambda one: span_end > one.came
                                         AND span_end <= one.came + one.size)[1] AS last_one,
           segments[-1].came + segments[-1].size AS answer_size
    FROM placed
), judged AS (
    SELECT *, CASE
               WHEN NOT stored OR NOT decided THEN 'no_answer'
               WHEN span_unit = 'tokens' AND capture_level <> 'tokens' THEN 'no_tokens'
               WHEN span_unit = 'tokens' AND len(gone) > 0 THEN 'redacted'
               WHEN span_unit = 'tokens' AND span_end > output_tokens THEN 'outside'
               WHEN span_unit = 'tokens' THEN 'exact'
               WHEN len(marks) <> len(gone) THEN 'redacted'
               -- It was redacted again, when a name was told later: no report says what lay there.
               WHEN len(gone) = 0 AND regexp_matches(said, '<[A-Z][A-Z0-9_]*_[0-9a-f]{16}>')
               THEN 'redacted'
               WHEN span_end > answer_size THEN 'outside'
               WHEN first_one IS NULL OR last_one IS NULL THEN 'redacted'
               ELSE 'exact' END AS state
    FROM moved
), shown AS (
    SELECT *, CASE WHEN state <> 'exact' THEN NULL WHEN span_unit = 'tokens' THEN span_start
                   ELSE span_start - first_one.came + first_one.lies END AS stored_start,
           CASE WHEN state <> 'exact' THEN NULL WHEN span_unit = 'tokens' THEN span_end
                ELSE span_end - last_one.came + last_one.lies END AS stored_end
    FROM judged
)
SELECT tenant_id, trajectory_id, step_id, signal_id, name, value, label, rationale, source_kind,
       source, is_gold, observed_at, recorded_at, span_unit, span_start, span_end, state,
       stored_start::BIGINT AS stored_start, stored_end::BIGINT AS stored_end,
       CASE WHEN span_unit = 'characters'
            THEN substring(said, (stored_start + 1)::BIGINT, (stored_end - stored_start)::BIGINT)
       END AS span_text
FROM shown;
COMMENT ON VIEW span_signals IS 'Feedback about spans of answers, and where each lies in what is stored';
