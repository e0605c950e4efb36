// Agents: the table of all agents, and the page of one agent.
(() => {
  const { $, element, say, place } = dom;
  const { text } = figures;
  const { count, moment, ago, off, facts } = fleet;

  // Rows on the page; a search has the others.
  const ROWS_MAX = 500;
  // A larger clock offset is shown.
  const CLOCK_MAX_NS = 1e9;
  const SVG = "http://www.w3.org/2000/svg";

  const sum = (values) => values.reduce((all, value) => all + value, 0);
  const hourOf = (agent) => agent.hour ?? null;
  const p99 = (agent) => {
    const known = (hourOf(agent)?.response_p99_ns ?? []).filter((value) => value != null);
    return known.length ? known[known.length - 1] : null;
  };
  const errors = (agent) => {
    const hour = hourOf(agent);
    const tried = hour ? sum(hour.attempts) : 0;
    return tried ? sum(hour.failed) / tried : null;
  };
  const lacks = (agent) => agent.losses.records + agent.losses.rows_dropped + agent.losses.connections_left_out + agent.rows_missed;
  const waits = (agent) => agent.spool?.rows ?? 0;
  const isOff = (agent) => Math.abs(agent.clock_offset_ns ?? 0) > CLOCK_MAX_NS;
  const clock = (agent) => (agent.clock_offset_ns == null ? (agent.state === "never" ? "–" : "unknown") : off(agent.clock_offset_ns));
  const goesBy = (agent) => agent.state === "never" || !agent.settings || agent.settings_seen === agent.settings.version;

  const STATES = { connected: ["connected", "good"], away: ["away", "bad"], never: ["never connected", "soft"] };
  const RANKS = { away: 0, never: 1, connected: 2 };

  // Columns: text for an agent, sort key, and colour of doubtful values.
  const COLUMNS = [
    { id: "name", title: "Agent", words: true, text: (agent) => agent.name, by: (agent) => agent.name },
    { id: "state", title: "State", words: true, text: (agent) => (agent.state === "away" ? `away ${ago(agent.last_seen_unix_ns).replace(" ago", "")}` : STATES[agent.state][0]), by: (agent) => RANKS[agent.state], tone: (agent) => STATES[agent.state][1] },
    { id: "group", title: "Group", words: true, text: (agent) => agent.group || "–", by: (agent) => agent.group },
    { id: "p99", title: "p99", text: (agent) => text(p99(agent), "ns"), by: p99, spark: (agent) => hourOf(agent)?.response_p99_ns, color: 0 },
    { id: "errors", title: "Failed", text: (agent) => text(errors(agent), "share"), by: errors, spark: (agent) => hourOf(agent)?.failed.map((failed, at) => (hourOf(agent).attempts[at] ? failed / hourOf(agent).attempts[at] : null)), least: 0.01, color: 1 },
    { id: "rate", title: "Rows a second", text: (agent) => (agent.rows_per_s == null ? "–" : text(agent.rows_per_s, "level")), by: (agent) => agent.rows_per_s },
    { id: "spool", title: "Rows in spool", text: (agent) => (agent.spool ? count(waits(agent)) : "–"), by: waits },
    { id: "lacks", title: "Lost", text: (agent) => count(lacks(agent)), by: lacks, tone: (agent) => (lacks(agent) ? "doubt" : "") },
    { id: "clock", title: "Clock offset", text: clock, by: (agent) => Math.abs(agent.clock_offset_ns ?? 0), tone: (agent) => (isOff(agent) ? "doubt" : "") },
    { id: "settings", title: "Settings", text: (agent) => (!agent.settings ? "–" : goesBy(agent) ? `${agent.settings.version}` : `${agent.settings_seen} of ${agent.settings.version}`), by: (agent) => agent.settings?.version ?? 0, tone: (agent) => (goesBy(agent) ? "" : "doubt") },
    { id: "version", title: "Version", words: true, text: (agent) => agent.version || "–", by: (agent) => agent.version },
  ];

  // ---- The table ----

  let sorted = { id: "state", up: true };
  let order = [];
  let orderedAt = -Infinity;
  const rows = new Map();

  const headRow = () => $("agents-table").tHead.rows[0];
  for (const column of COLUMNS) {
    const cell = element("th", `${column.words ? "words " : ""}c-${column.id}`);
    cell.scope = "col";
    cell.append(
      fleet.button(column.title, () => {
        sorted = { id: column.id, up: sorted.id === column.id ? !sorted.up : true };
        rebuild();
      }),
    );
    headRow().append(cell);
  }

  const compare = (column) => (a, b) => {
    const [x, y] = [column.by(a), column.by(b)];
    // Unknown values are last in either order.
    if (x == null || y == null) return (x == null) - (y == null) || a.name.localeCompare(b.name);
    const way = typeof x === "string" ? x.localeCompare(y) : x - y;
    return (sorted.up ? way : -way) || (a.name < b.name ? -1 : 1);
  };
  const selected = (agents) => {
    const [search, group, state] = [$("agents-search").value.trim().toLowerCase(), $("agents-group").value, $("agents-state").value];
    return agents.filter(
      (agent) =>
        (!state || agent.state === state) &&
        (!group || agent.group === (group === "-" ? "" : group.slice(1))) &&
        (!search || [agent.name, agent.group, agent.host, agent.last_address, agent.version].some((field) => field.toLowerCase().includes(search))),
    );
  };

  const spark = (cell, values, column) => {
    const signature = JSON.stringify(values ?? null);
    if (cell.dataset.drawn === signature) return;
    cell.dataset.drawn = signature;
    cell.querySelector("svg")?.remove();
    if (!values?.some((value) => value != null)) return;
    const most = Math.max(column.least ?? 0, ...values.filter((value) => value != null)) || 1;
    let path = "";
    let is_on = false;
    values.forEach((value, at) => {
      if (value != null) path += `${is_on ? "L" : "M"}${at} ${(15 - (14 * value) / most).toFixed(1)}${is_on ? "" : "h0.6"}`;
      is_on = value != null;
    });
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("viewBox", "0 0 60 16");
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("class", `plot spark`);
    svg.setAttribute("aria-hidden", "true");
    const line = document.createElementNS(SVG, "path");
    line.setAttribute("class", `s s${column.color}`);
    line.setAttribute("d", path);
    svg.append(line);
    cell.prepend(svg);
  };

  const rowOf = (agent) => {
    let row = rows.get(agent.name);
    if (!row) {
      row = element("tr");
      for (const column of COLUMNS) {
        const cell = element(column.id === "name" ? "th" : "td", `${column.words ? "words " : ""}c-${column.id}`);
        if (column.id === "name") {
          cell.scope = "row";
          cell.append(fleet.link(agent.name, `#agent?${new URLSearchParams({ name: agent.name })}`));
        } else cell.append(element("span"));
        row.append(cell);
      }
      rows.set(agent.name, row);
    }
    COLUMNS.forEach((column, at) => {
      const cell = row.cells[at];
      if (column.id !== "name") {
        say(cell.lastElementChild, column.text(agent));
        cell.lastElementChild.className = column.tone?.(agent) ?? "";
      }
      if (column.spark) spark(cell, column.spark(agent), column);
    });
    return row;
  };

  const options = (select, entries) => {
    const signature = JSON.stringify(entries);
    if (select.dataset.has === signature) return;
    select.dataset.has = signature;
    const chosen = select.value;
    select.replaceChildren(
      ...entries.map(([value, words]) => {
        const option = element("option", "", words);
        option.value = value;
        return option;
      }),
    );
    select.value = entries.some(([value]) => value === chosen) ? chosen : entries[0]?.[0] ?? "";
  };
  fleet.options = options;
  fleet.groups = (seen) => [...new Set(Object.values(seen.agents).map((agent) => agent.group))].filter(Boolean).sort();

  const show = (seen) => {
    const agents = Object.values(seen.agents);
    const of = (state) => agents.filter((agent) => agent.state === state).length;
    const rates = agents.map((agent) => agent.rows_per_s).filter((rate) => rate != null);
    facts($("agents-facts"), [
      ["Connected", count(of("connected"))],
      ["Away", count(of("away")), "", of("away") ? "bad" : ""],
      ["Never connected", count(of("never"))],
      ["Rows a second", rates.length ? text(sum(rates), "level") : "–", "the last minute"],
      ["Waiting for a file", count(seen.head.waiting_rows), "rows"],
      ["Wrong clocks", count(agents.filter(isOff).length), "by more than a second", agents.some(isOff) ? "doubt" : ""],
      ["Refused", count(seen.head.refused), "requests, ever"],
    ]);
    options($("agents-group"), [["", "all"], ["-", "in none"], ...fleet.groups(seen).map((group) => [`=${group}`, group])]);
    const column = COLUMNS.find((column) => column.id === sorted.id);
    [...headRow().cells].forEach((cell, at) => {
      const is_it = COLUMNS[at].id === sorted.id;
      cell.setAttribute("aria-sort", is_it ? (sorted.up ? "ascending" : "descending") : "none");
    });
    const found = selected(agents);
    // Rows keep their places: the order changes on request, otherwise rarely.
    const scroll = $("agents-scroll");
    const is_held = scroll.matches(":hover") || scroll.contains(document.activeElement);
    const names = new Set(found.map((agent) => agent.name));
    const is_same = order.length === names.size && order.every((name) => names.has(name));
    if (!is_same || orderedAt === -Infinity || (!is_held && performance.now() - orderedAt > 10000)) {
      orderedAt = performance.now();
      order = found.sort(compare(column)).map((agent) => agent.name);
    }
    const shown = order.slice(0, ROWS_MAX).filter((name) => seen.agents[name]);
    for (const name of rows.keys()) if (!seen.agents[name]) rows.delete(name);
    place($("agents-table").tBodies[0], shown.map((name) => rowOf(seen.agents[name])));
    const more = order.length - shown.length;
    say($("agents-count"), order.length === agents.length && !more ? "" : `${count(order.length)} of ${count(agents.length)}${more ? `, the first ${count(shown.length)} shown` : ""}`);
  };
  const rebuild = () => {
    orderedAt = -Infinity;
    if (fleet.seen()) show(fleet.seen());
  };
  $("agents-controls").addEventListener("input", rebuild);
  $("agents-controls").addEventListener("submit", (event) => event.preventDefault());
  fleet.view("agents", { show });

  // ---- One agent ----

  let name = "";
  const showOne = (seen) => {
    const agent = seen.agents[name];
    say($("agent-name"), name);
    for (const id of ["agent-facts", "agent-settings"]) $(id).hidden = !agent;
    if (!agent) return say($("agent-links"), "No agent has this name.");
    const [state, tone] = STATES[agent.state];
    facts($("agent-facts"), [
      ["State", state, agent.last_seen_unix_ns ? `last message ${ago(agent.last_seen_unix_ns)}` : "its token was never used", tone],
      ["Group", agent.group || "–"],
      ["p99", text(p99(agent), "ns"), "the newest minute"],
      ["Failed", text(errors(agent), "share"), "the last hour"],
      ["Rows", count(agent.rows), agent.rows_per_s == null ? "" : `${text(agent.rows_per_s, "level")} a second`],
      ["Spool", agent.spool ? text(agent.spool.bytes, "bytes") : "–", agent.spool ? `${count(agent.spool.batches)} batches of at most ${text(agent.spool.bytes_max, "bytes")}` : ""],
      ["Lost", count(lacks(agent)), `${count(agent.losses.records)} records, ${count(agent.losses.rows_dropped)} rows, ${count(agent.losses.connections_left_out)} connections${agent.batches_missed ? `, ${count(agent.batches_missed)} batches with ${count(agent.rows_missed)} rows discarded by NATS` : ""}`, lacks(agent) ? "doubt" : ""],
      ["Left out", count(agent.losses.rows_filtered + agent.losses.rows_not_drawn), "rows, by the settings"],
      ["Clock offset", clock(agent), agent.clock_error_ns ? `known to ${text(agent.clock_error_ns, "ns")}` : "", isOff(agent) ? "doubt" : ""],
      ["Connections", agent.gauges ? count(agent.gauges.open) : "–", agent.gauges ? `${count(agent.gauges.processes)} processes, ${count(agent.gauges.in_flight)} in flight` : ""],
      ["Host", agent.host || "–", agent.last_address],
      ["Version", agent.version || "–", agent.kernel],
      ["First seen", agent.first_seen_unix_ns ? moment(agent.first_seen_unix_ns).slice(0, 10) : "–"],
      ["Token", agent.has_token ? "good" : "none", agent.has_token ? "" : "it cannot connect again", agent.has_token ? "" : "doubt"],
    ]);
    fleet.settingsOf($("agent-settings"), agent);
  };
  const ask = async () => {
    const requested = name;
    const found = await fleet.api(`agents/${encodeURIComponent(requested)}`).catch(() => null);
    if (requested !== name) return;
    const programs = found?.programs ?? [];
    const head = ["program", "seen", "unseen", "connections", "bytes unseen", "why incomplete", "last"];
    const rows = programs.map((program) => [program.name, count(program.seen), count(program.unseen), count(program.connections), text(program.unseen_bytes, "bytes"), program.why, ago(program.last_unix_ns)]);
    fleet.table($("agent-programs"), head, rows, { left: [5], none: "Its programs are not known yet." });
  };
  fleet.view("agent", {
    open(params) {
      name = params.get("name") ?? "";
      $("agent-settings").replaceChildren();
      const of = new URLSearchParams({ agent: name });
      const links = [
        fleet.link("All agents", "#agents"),
        fleet.link("Its quality", `#quality?${of}`),
        ...["csv", "jsonl", "parquet"].map((format) => fleet.link(`Its last hour as ${{ csv: "CSV", jsonl: "JSON lines", parquet: "Parquet" }[format]}`, `api/1/exchanges/export?${of}&since=1h&format=${format}`)),
      ];
      $("agent-links").replaceChildren(...links.flatMap((link, at) => (at ? [" · ", link] : [link])));
      ask();
    },
    again: ask,
    show: showOne,
  });
})();
