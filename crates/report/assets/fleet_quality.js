// Quality over time, and the comparison of two groups.
(() => {
  const { $, element, place } = dom;
  const { text } = figures;
  const { count, moment } = fleet;

  const SPANS = { minute: 60, hour: 3600, day: 86400 };
  // Largest number of distinguishable lines.
  const LINES = 6;
  const QUANTILES = [["p50", "median"], ["p90", "90 %"], ["p99", "99 %"]];
  const controls = $("quality-controls");
  const fields = () => Object.fromEntries(new FormData(controls));

  const nameOf = (group, by) => group.key ?? (group.others ? "all others" : by === "none" ? "all" : by === "group" ? "in no group" : "not known");

  // Every span of the time, so that a span without data is a gap.
  const begins = (answer) => {
    const step = SPANS[answer.resolution];
    if (!step) return [...new Set(answer.groups.flatMap((group) => (group.spans ?? []).map((one) => one.begin_s)))].sort((a, b) => a - b);
    return Array.from({ length: Math.round((answer.until_s - answer.from_s) / step) }, (none, at) => answer.from_s + at * step);
  };

  const charts = {
    times: fleet.chart("Response time", "From a request's first byte to its response's last byte, of successful exchanges."),
    errors: fleet.chart("Failed", "Share of failures, of ended exchanges and failed connections."),
    availability: fleet.chart("Availability", "Windows of 10 s with a successful attempt, of all windows with an attempt."),
    attempts: fleet.chart("Attempts", "Ended exchanges per second."),
    bytes: fleet.chart("Throughput", "Bytes received per second."),
  };
  place($("quality-charts"), Object.values(charts).map((chart) => chart.node));

  const draw = (answer, chosen) => {
    const xs = begins(answer);
    const until = answer.until_s;
    const groups = answer.groups.slice(0, LINES);
    const is_one = answer.by === "none";
    const lines = (value) =>
      groups.map((group, color) => {
        const spans = new Map((group.spans ?? []).map((one) => [one.begin_s, one]));
        return { name: nameOf(group, answer.by), color, ys: xs.map((x) => (spans.has(x) ? value(spans.get(x)) : null) ?? null) };
      });
    const drawn = answer.groups.length > LINES ? ` The ${LINES} with most attempts are drawn, all are in the table.` : "";
    const quantile = chosen.quantile;
    const times = is_one
      ? QUANTILES.map(([id, name], color) => ({ ...lines((one) => one.response_ns?.[id])[0], name, color })).filter((line) => line.ys)
      : lines((one) => one.response_ns?.[quantile]);
    const word = QUANTILES.find(([id]) => id === quantile)[1];
    charts.times.show({ about: `From a request's first byte to its response's last byte, of successful exchanges${is_one ? "" : `: ${word}`}.${drawn}`, quantity: "ns", log: true, xs, until, series: times });
    charts.errors.show({ quantity: "share", xs, until, series: lines((one) => one.error_ratio) });
    charts.availability.show({ quantity: "share", top: 1, xs, until, series: lines((one) => one.availability?.windows) });
    // The rate of the current span is over its elapsed time.
    const passed = (begin, at) => Math.max(1, Math.min(xs[at + 1] ?? until, fleet.now() / 1000) - begin);
    const rates = lines((one) => one.attempts_estimated ?? one.attempts);
    for (const line of rates) line.ys = line.ys.map((y, at) => (y == null ? null : y / passed(xs[at], at)));
    charts.attempts.show({ quantity: "rate", xs, until, series: rates });
    charts.bytes.show({ quantity: "bytes", xs, until, series: lines((one) => one.received_bytes_per_s) });
  };

  const tell = (answer) => {
    const rows = answer.groups.map((group) => {
      const { whole } = group;
      const times = whole.response_ns;
      return [
        nameOf(group, answer.by),
        count(whole.attempts),
        count(whole.failed),
        text(whole.error_ratio, "share"),
        text(whole.availability?.attempts, "share"),
        text(whole.availability?.windows, "share"),
        ...["p50", "p90", "p99", "p99_9", "max"].map((id) => text(times?.[id], "ns")),
        text(whole.received_bytes_per_s, "bytes"),
      ];
    });
    const by = answer.by === "none" ? "" : answer.by;
    const head = [by, "attempts", "failed", "error ratio", "availability", "of windows", "median", "90 %", "99 %", "99.9 %", "largest", "received a second"];
    const nodes = fleet.table($("quality-table"), head, rows, { none: "No exchanges in this time." });
    nodes.forEach((row, at) => (row.dataset.values = JSON.stringify(answer.groups[at].whole)));
    const linked = { agent: (key) => `#agent?${new URLSearchParams({ name: key })}` }[answer.by];
    if (linked) answer.groups.forEach((group, at) => group.key && fleet.linked([nodes[at]], () => linked(group.key)));
    const all = answer.groups.reduce((sum, group) => sum + group.whole.attempts, 0);
    const failed = answer.groups.reduce((sum, group) => sum + group.whole.failed, 0);
    const span = `${moment(answer.from_s * 1e9).slice(0, 16)} to ${moment(answer.until_s * 1e9).slice(0, 16)} UTC, by ${answer.resolution}`;
    const times = answer.by === "none" ? answer.groups[0]?.whole.response_ns : null;
    const unlisted = answer.attempts_unlisted ? ` ${count(answer.attempts_unlisted)} further attempts may belong here, but are stored without this distinction.` : "";
    const said = all
      ? `${count(all)} attempts, ${failed ? `${text(failed / all, "share")} failed` : "none failed"}${times ? `; half took at most ${text(times.p50, "ns")}, 99 % at most ${text(times.p99, "ns")}` : ""}. ${span}.${unlisted}`
      : `No exchanges. ${span}.`;
    fleet.tell($("quality-said"), said);
  };

  let asking = 0;
  const ask = async () => {
    const chosen = fields();
    const number = ++asking;
    $("quality-quantile").hidden = chosen.by === "none";
    const { quantile, ...parameters } = chosen;
    const answer = await fleet.attempt($("quality-said"), () => fleet.api(`quality${fleet.query(parameters)}`), $("quality-said").textContent);
    // The fields may have changed meanwhile.
    if (!answer || number !== asking) return;
    tell(answer);
    draw(answer, chosen);
    $("view-quality").dataset.answered = number;
  };
  let waiting = 0;
  const soon = () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      // The page's address contains the query, so that it can be shared and opened again.
      const { quantile, ...parameters } = fields();
      const hash = `#quality${fleet.query(parameters)}`;
      if (location.hash !== hash) history.replaceState(null, "", hash);
      ask();
    }, 250);
  };
  controls.addEventListener("input", soon);
  controls.addEventListener("submit", (event) => {
    event.preventDefault();
    soon();
  });
  fleet.view("quality", {
    open(params) {
      // A link contains the complete query; without one the last query is used.
      if (params.size) controls.reset();
      for (const field of controls.elements) if (field.name && params.has(field.name)) field.value = params.get(field.name);
      ask();
    },
    again: ask,
  });

  // ---- Comparison ----

  const compare = $("compare-controls");
  const labelled = (title, node) => {
    const label = element("label");
    label.append(element("span", "", title), node);
    return label;
  };
  const select = (name, entries) => {
    const node = element("select");
    node.name = name;
    if (entries) fleet.options(node, entries);
    return node;
  };
  const [a, b] = [select("a"), select("b")];
  const since = select("since", [["1h", "last hour"], ["6h", "last 6 hours"], ["24h", "last day"], ["7d", "last week"], ["31d", "last month"]]);
  since.value = "24h";
  const narrow = ["program", "peer"].map((name) => {
    const node = element("input");
    node.name = name;
    node.placeholder = "all";
    node.autocomplete = "off";
    node.spellcheck = false;
    return node;
  });
  compare.append(labelled("A", a), labelled("B", b), labelled("Time", since), labelled("Program", narrow[0]), labelled("Peer", narrow[1]));

  const NAMES = { response_p50: "p50 response time", response_p99: "p99 response time", error_ratio: "failed", availability: "availability, of windows" };
  const value = (metric, figure) => text(figure, metric.unit === "ns" ? "ns" : "share");
  // Differences of times are relative to A; those of ratios are percentage points.
  const difference = (metric, figure) => `${figure > 0 ? "+" : figure < 0 ? "−" : ""}${(Math.abs(figure) * 100).toFixed(2)}${metric.unit === "ns" ? " %" : " points"}`;

  let comparing = 0;
  const askCompare = async () => {
    const number = ++comparing;
    if (!a.value || !b.value) {
      $("compare-table").replaceChildren();
      return fleet.tell($("compare-said"), "Two groups are needed: assign agents to groups on their pages.");
    }
    if (a.value === b.value) {
      $("compare-table").replaceChildren();
      return fleet.tell($("compare-said"), "Choose two different groups.");
    }
    const [program, peer] = narrow.map((node) => node.value.trim());
    const query = fleet.query({ a_group: a.value, b_group: b.value, since: since.value, a_program: program, b_program: program, a_peer: peer, b_peer: peer });
    const answer = await fleet.attempt($("compare-said"), () => fleet.api(`compare${query}`), $("compare-said").textContent);
    if (!answer || number !== comparing) return;
    const shown = answer.metrics.filter((metric) => metric.shown);
    const percent = `${+(answer.confidence * 100).toFixed(1)} %`;
    const named = (words) => words.replace(/\bA\b/g, a.value).replace(/\bB's\b/g, `${b.value}'s`).replace(/\bB\b/g, b.value);
    const sentence = shown.length ? `${shown.map((metric) => named(metric.said)).join("; ")}.` : `No difference between ${a.value} and ${b.value} is shown.`;
    fleet.tell($("compare-said"), sentence);
    const rows = answer.metrics.map((metric) => [
      NAMES[metric.name] ?? metric.name,
      value(metric, metric.a),
      value(metric, metric.b),
      metric.difference == null ? "–" : difference(metric, metric.difference),
      metric.interval ? metric.interval.map((end) => difference(metric, end)).join(" to ") : "–",
      named(metric.said),
    ]);
    const attempts = [answer.a, answer.b].map((side) => count(side.figures.attempts));
    rows.unshift(["attempts", ...attempts, "", "", ""]);
    fleet.table($("compare-table"), ["", a.value, b.value, "difference", `interval, all together ${percent}`, "in words"], rows, { left: [5] });
    for (const note of answer.notes) $("compare-table").append(element("p", "note", named(note)));
    $("view-compare").dataset.answered = number;
  };
  compare.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(askCompare, 250);
  });
  compare.addEventListener("submit", (event) => event.preventDefault());
  let known = "";
  fleet.view("compare", {
    open: () => known && askCompare(),
    show(seen) {
      const groups = fleet.groups(seen);
      const signature = JSON.stringify(groups);
      if (signature === known) return;
      const is_first = !known;
      known = signature;
      for (const node of [a, b]) fleet.options(node, groups.map((group) => [group, group]));
      if (is_first && groups.length > 1) b.value = groups[1];
      askCompare();
    },
  });
})();
