-- The manager's index: DATA/index.sqlite, write-ahead log, synchronous = FULL. Moments are ns since 1970 (UTC) by the manager's clock
-- unless said otherwise. A change of this file needs another user_version and a step in `data.rs`.

-- Who may come. A token's secret is not here: only its SHA-256.
CREATE TABLE tokens (
  name       TEXT NOT NULL,                 -- the agent's, or the operator's
  role       TEXT NOT NULL,                 -- 'agent', 'operator' (reads and writes), 'reader'
  digest     BLOB NOT NULL UNIQUE,          -- SHA-256 of the whole token
  made_at    INTEGER NOT NULL,
  revoked_at INTEGER,                       -- absent: good
  used_at    INTEGER                        -- last request, to the minute
);
CREATE UNIQUE INDEX tokens_good ON tokens (name, role) WHERE revoked_at IS NULL;

-- Agents that ever said hello.
CREATE TABLE agents (
  name          TEXT PRIMARY KEY,
  "group"       TEXT NOT NULL DEFAULT '',   -- given by the operator; '': none
  settings      TEXT NOT NULL,              -- tap_protocol::Settings as JSON
  host          TEXT NOT NULL DEFAULT '',
  version       TEXT NOT NULL DEFAULT '',
  kernel        TEXT NOT NULL DEFAULT '',
  boot          TEXT NOT NULL DEFAULT '',
  first_seen_at INTEGER NOT NULL,
  last_seen_at  INTEGER NOT NULL,           -- last hello or batch
  told_at       INTEGER NOT NULL DEFAULT 0, -- sealing of the newest batch: up to when the agent has told what it saw; 0: nothing yet
  last_address  TEXT NOT NULL DEFAULT '',
  clock_offset_ns  INTEGER NOT NULL DEFAULT 0, -- the agent's wall clock less the manager's
  clock_error_ns INTEGER NOT NULL DEFAULT 0,
  spool         TEXT NOT NULL DEFAULT '{}', -- tap_protocol::SpoolStand as JSON
  gauges        TEXT NOT NULL DEFAULT '{}', -- tap_protocol::Gauges as JSON
  settings_seen INTEGER NOT NULL DEFAULT 0, -- version that the agent goes by
  rows          INTEGER NOT NULL DEFAULT 0, -- stored, ever
  records_lost  INTEGER NOT NULL DEFAULT 0, -- tap_protocol::Losses, summed
  rows_dropped  INTEGER NOT NULL DEFAULT 0,
  connections_left_out INTEGER NOT NULL DEFAULT 0,
  rows_filtered INTEGER NOT NULL DEFAULT 0,
  rows_not_drawn INTEGER NOT NULL DEFAULT 0,
  rows_too_old  INTEGER NOT NULL DEFAULT 0, -- came when the retention had no day for them any more
  rows_spoilt   INTEGER NOT NULL DEFAULT 0  -- of batches that could not be read back: see set_aside
);

-- Streams, and how far each is stored.
CREATE TABLE streams (
  stream  TEXT PRIMARY KEY,
  agent   TEXT NOT NULL REFERENCES agents (name),
  through INTEGER NOT NULL,                 -- highest number stored
  digest  BLOB,                             -- SHA-256 of that batch's unpacked body
  touched_at INTEGER NOT NULL               -- when that came
);
CREATE INDEX streams_of ON streams (agent, touched_at);

-- Programs of an agent's machine, summed from tap_protocol::Program.
CREATE TABLE programs (
  agent TEXT NOT NULL, name TEXT NOT NULL,
  seen INTEGER NOT NULL, unseen INTEGER NOT NULL, connections INTEGER NOT NULL, unseen_bytes INTEGER NOT NULL,
  why TEXT NOT NULL, last_at INTEGER NOT NULL,
  PRIMARY KEY (agent, name)
) WITHOUT ROWID;

-- Batches that are stored here and not yet in a day's file.
CREATE TABLE pending (
  id          INTEGER PRIMARY KEY,          -- in the order of coming
  agent       TEXT NOT NULL,
  stream      TEXT NOT NULL,
  sequence    INTEGER NOT NULL,
  received_at INTEGER NOT NULL,
  zero_at     INTEGER NOT NULL,             -- the batch's zero by the manager's clock
  clock_offset_ns INTEGER NOT NULL,            -- the agent's own word of its zero, less zero_at
  rows        INTEGER NOT NULL,
  first_at    INTEGER NOT NULL,             -- ends of its rows, the first and the last
  last_at     INTEGER NOT NULL,
  body        BLOB NOT NULL                 -- tap_protocol::Batch, JSON in gzip
);

-- Batches that could not be read back from pending (a damaged disk), the last 100, for people to look at.
CREATE TABLE set_aside (
  id INTEGER PRIMARY KEY, at INTEGER NOT NULL, agent TEXT NOT NULL, stream TEXT NOT NULL, sequence INTEGER NOT NULL,
  rows INTEGER NOT NULL, why TEXT NOT NULL, body BLOB NOT NULL
);

-- Files of days. A file that is not here is none: removed at the next start.
CREATE TABLE parts (
  day      TEXT NOT NULL,                   -- 2026-11-23, of the rows' ends
  file     TEXT NOT NULL,                   -- name within days/DAY/
  rows     INTEGER NOT NULL, bytes INTEGER NOT NULL,
  first_at INTEGER NOT NULL, last_at INTEGER NOT NULL,   -- ends of rows
  made_at  INTEGER NOT NULL,
  PRIMARY KEY (day, file)
) WITHOUT ROWID;

-- What was refused, the last 10,000; and how often each, ever.
CREATE TABLE refusals (
  id INTEGER PRIMARY KEY, at INTEGER NOT NULL, why TEXT NOT NULL, status INTEGER NOT NULL,
  agent TEXT NOT NULL,                      -- of the token, where there was a good one; else ''
  address TEXT NOT NULL, path TEXT NOT NULL, message TEXT NOT NULL
);
CREATE TABLE refused (why TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID;   -- as tap_protocol::Why writes it

-- Quality over time. One row for a span and a series; folded in the transaction that makes the parts. `quality` owns it.
CREATE TABLE quality (
  span_s  INTEGER NOT NULL,                 -- 60, 3600 or 86400
  whole   INTEGER NOT NULL,                 -- 1: all of an agent and side; 0: one of its series
  begin_s INTEGER NOT NULL,                 -- s since 1970, UTC
  agent   TEXT NOT NULL,
  rest    INTEGER NOT NULL,                 -- 0: what it says; 1: the program's other peers; 2: all other programs (beyond the bounds)
  side TEXT NOT NULL, program TEXT NOT NULL, peer TEXT NOT NULL,       -- '': not known, or of no one
  attempts INTEGER NOT NULL, failed INTEGER NOT NULL,
  attempts_estimated REAL NOT NULL,         -- each counted 1 / share; the next two too
  sent_estimated REAL NOT NULL, received_estimated REAL NOT NULL,
  sent_bytes INTEGER NOT NULL, received_bytes INTEGER NOT NULL,
  receive_ns INTEGER NOT NULL, receive_bytes INTEGER NOT NULL,         -- of exchanges that took time to receive
  connections INTEGER NOT NULL, connections_failed INTEGER NOT NULL, lookups_failed INTEGER NOT NULL,
  causes   TEXT NOT NULL,                   -- of failures: {"ECONNREFUSED":3} or ''
  response BLOB NOT NULL,                   -- times of response: quality::times
  windows  BLOB NOT NULL,                   -- of 10 s, tried and succeeded: quality::windows
  PRIMARY KEY (span_s, whole, begin_s, agent, rest, side, program, peer)
) WITHOUT ROWID;

-- Rules of alerts, how each stands (alerts::standing, JSON), and what they said.
CREATE TABLE alerts (name TEXT PRIMARY KEY, rule TEXT NOT NULL, standing TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE alert_log (
  id INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, name TEXT NOT NULL, event TEXT NOT NULL, body TEXT NOT NULL,
  logged INTEGER NOT NULL DEFAULT 0,        -- 1: it stands in alerts.log
  told   INTEGER NOT NULL DEFAULT 0,        -- 1: the webhook has it; 2: there was none; 3: given up
  tries  INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX alert_log_unlogged ON alert_log (id) WHERE logged = 0;
CREATE INDEX alert_log_untold ON alert_log (id) WHERE told = 0;

-- What left by OTLP: sums of each series since its first, so that a message that is lost or sent twice changes nothing.
CREATE TABLE otlp (series TEXT PRIMARY KEY, started_at INTEGER NOT NULL, last_at INTEGER NOT NULL, body BLOB NOT NULL) WITHOUT ROWID;

-- Small facts: the key under which agents hash addresses, the retention, the page's secret.
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
