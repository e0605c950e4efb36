-- The manager's index: DATA/index.sqlite, write-ahead log, synchronous = FULL. Times are ns since 1970 (UTC) on the manager's clock
-- unless said otherwise. A change of this file needs a new user_version and a step in `data.rs`.

-- Tokens. The secret is not stored: only its SHA-256.
CREATE TABLE tokens (
  name       TEXT NOT NULL,                 -- the agent's, or the operator's
  role       TEXT NOT NULL,                 -- 'agent', 'operator' (reads and writes), 'reader'
  digest     BLOB NOT NULL UNIQUE,          -- SHA-256 of the whole token
  made_at    INTEGER NOT NULL,
  revoked_at INTEGER,                       -- absent: valid
  used_at    INTEGER                        -- last request, to the minute
);
CREATE UNIQUE INDEX tokens_good ON tokens (name, role) WHERE revoked_at IS NULL;

-- Agents that have sent a hello.
CREATE TABLE agents (
  name          TEXT PRIMARY KEY,
  "group"       TEXT NOT NULL DEFAULT '',   -- set by the operator; '': none
  settings      TEXT NOT NULL,              -- tap_protocol::Settings as JSON
  host          TEXT NOT NULL DEFAULT '',
  version       TEXT NOT NULL DEFAULT '',
  kernel        TEXT NOT NULL DEFAULT '',
  boot          TEXT NOT NULL DEFAULT '',
  first_seen_at INTEGER NOT NULL,
  last_seen_at  INTEGER NOT NULL,           -- last hello or batch
  told_at       INTEGER NOT NULL DEFAULT 0, -- when the newest batch was sealed; 0: no batch yet
  last_address  TEXT NOT NULL DEFAULT '',
  clock_offset_ns INTEGER,                  -- the agent's wall clock less the manager's; absent: not measured
  clock_error_ns INTEGER,
  spool         TEXT NOT NULL DEFAULT '{}', -- tap_protocol::SpoolUsage as JSON
  gauges        TEXT NOT NULL DEFAULT '{}', -- tap_protocol::Gauges as JSON
  settings_seen INTEGER NOT NULL DEFAULT 0, -- version that the agent applies
  rows          INTEGER NOT NULL DEFAULT 0, -- stored so far
  records_lost  INTEGER NOT NULL DEFAULT 0, -- tap_protocol::Losses, summed
  rows_dropped  INTEGER NOT NULL DEFAULT 0,
  connections_left_out INTEGER NOT NULL DEFAULT 0,
  rows_filtered INTEGER NOT NULL DEFAULT 0,
  rows_not_drawn INTEGER NOT NULL DEFAULT 0,
  batches_missed INTEGER NOT NULL DEFAULT 0, -- discarded by a stream of NATS before this manager read them
  rows_missed   INTEGER NOT NULL DEFAULT 0, -- rows of those, as far as known
  rows_too_old  INTEGER NOT NULL DEFAULT 0, -- arrived after their day had been removed
  rows_spoilt   INTEGER NOT NULL DEFAULT 0  -- of unreadable batches: see set_aside
);

-- Streams, and the stored position of each.
CREATE TABLE streams (
  stream  TEXT PRIMARY KEY,
  agent   TEXT NOT NULL REFERENCES agents (name),
  through INTEGER NOT NULL,                 -- highest number stored
  digest  BLOB,                             -- SHA-256 of that batch's decompressed body
  rows_through INTEGER,                     -- tap_protocol::log::ROWS_AFTER of that batch; absent: it came from the agent itself
  touched_at INTEGER NOT NULL               -- when that batch arrived
);
CREATE INDEX streams_of ON streams (agent, touched_at);

-- Programs of an agent's machine, summed from tap_protocol::Program.
CREATE TABLE programs (
  agent TEXT NOT NULL, name TEXT NOT NULL,
  seen INTEGER NOT NULL, unseen INTEGER NOT NULL, connections INTEGER NOT NULL, unseen_bytes INTEGER NOT NULL,
  why TEXT NOT NULL, last_at INTEGER NOT NULL,
  PRIMARY KEY (agent, name)
) WITHOUT ROWID;

-- Batches that are stored here and not yet in a day file.
CREATE TABLE pending (
  id          INTEGER PRIMARY KEY,          -- in the order of arrival
  agent       TEXT NOT NULL,
  stream      TEXT NOT NULL,
  sequence    INTEGER NOT NULL,
  received_at INTEGER NOT NULL,
  zero_at     INTEGER NOT NULL,             -- the batch's zero on the manager's clock
  clock_offset_ns INTEGER,                  -- the agent's clock at its zero, less zero_at; absent: not measured
  rows        INTEGER NOT NULL,
  first_at    INTEGER NOT NULL,             -- end times of its first and last row
  last_at     INTEGER NOT NULL,
  body        BLOB NOT NULL                 -- tap_protocol::Batch, JSON in gzip
);

-- Batches of pending that are unreadable (a damaged disk), the last 100, for inspection.
CREATE TABLE set_aside (
  id INTEGER PRIMARY KEY, at INTEGER NOT NULL, agent TEXT NOT NULL, stream TEXT NOT NULL, sequence INTEGER NOT NULL,
  rows INTEGER NOT NULL, why TEXT NOT NULL, body BLOB NOT NULL
);

-- Day files. A file that is not listed is moved to unknown/ at the next start.
CREATE TABLE parts (
  day      TEXT NOT NULL,                   -- 2026-11-23, the day of the rows' end times
  file     TEXT NOT NULL,                   -- name within days/DAY/
  rows     INTEGER NOT NULL, bytes INTEGER NOT NULL,
  first_at INTEGER NOT NULL, last_at INTEGER NOT NULL,   -- end times of rows
  made_at  INTEGER NOT NULL,
  PRIMARY KEY (day, file)
) WITHOUT ROWID;

-- Refused requests, the last 10,000; and the number of each kind so far.
CREATE TABLE refusals (
  id INTEGER PRIMARY KEY, at INTEGER NOT NULL, why TEXT NOT NULL, status INTEGER NOT NULL,
  agent TEXT NOT NULL,                      -- of the token, if valid; otherwise ''
  address TEXT NOT NULL, path TEXT NOT NULL, message TEXT NOT NULL
);
-- `why` as tap_protocol::RefusalReason writes it.
CREATE TABLE refused (why TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID;

-- Quality over time. One row per span and series; added in the transaction that lists the parts. Module `quality` owns it.
CREATE TABLE quality (
  span_s  INTEGER NOT NULL,                 -- 60, 3600 or 86400
  whole   INTEGER NOT NULL,                 -- 1: all of an agent and side; 0: one of its series
  begin_s INTEGER NOT NULL,                 -- s since 1970, UTC
  agent   TEXT NOT NULL,
  rest    INTEGER NOT NULL,                 -- 0: one series; 1: the program's other peers; 2: all other programs (beyond the limits)
  side TEXT NOT NULL, program TEXT NOT NULL, peer TEXT NOT NULL,       -- '': unknown, or none
  attempts INTEGER NOT NULL, failed INTEGER NOT NULL,
  attempts_estimated REAL NOT NULL,         -- each counted 1 / share; the next two too
  sent_estimated REAL NOT NULL, received_estimated REAL NOT NULL,
  sent_bytes INTEGER NOT NULL, received_bytes INTEGER NOT NULL,
  receive_ns INTEGER NOT NULL, receive_bytes INTEGER NOT NULL,         -- of exchanges that took time to receive
  connections INTEGER NOT NULL, connections_failed INTEGER NOT NULL, lookups_failed INTEGER NOT NULL,
  causes   TEXT NOT NULL,                   -- of failures: {"ECONNREFUSED":3} or ''
  response BLOB NOT NULL,                   -- response times: quality::time_histogram
  windows  BLOB NOT NULL,                   -- windows of 10 s with attempts and successes: quality::windows
  PRIMARY KEY (span_s, whole, begin_s, agent, rest, side, program, peer)
) WITHOUT ROWID;

-- Alert rules, their states (RuleState, JSON), and alert events.
CREATE TABLE alerts (name TEXT PRIMARY KEY, rule TEXT NOT NULL, standing TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE alert_log (
  id INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, name TEXT NOT NULL, event TEXT NOT NULL, body TEXT NOT NULL,
  logged INTEGER NOT NULL DEFAULT 0,        -- 1: written to alerts.log
  told   INTEGER NOT NULL DEFAULT 0,        -- 1: the webhook accepted it; 2: no webhook; 3: abandoned
  tries  INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX alert_log_unlogged ON alert_log (id) WHERE logged = 0;
CREATE INDEX alert_log_untold ON alert_log (id) WHERE told = 0;

-- OTLP export: cumulative sums of each series, so that lost or repeated messages change nothing.
CREATE TABLE otlp (series TEXT PRIMARY KEY, started_at INTEGER NOT NULL, last_at INTEGER NOT NULL, body BLOB NOT NULL) WITHOUT ROWID;

-- Small facts: the names in the certificate, the identifier of the index, the page's secret, the position in a stream of NATS.
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
