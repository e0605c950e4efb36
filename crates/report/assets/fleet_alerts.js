// Alerts: firing alerts, the rules, the history.
(() => {
  const { $, element } = dom;
  const { count, moment, span } = fleet;

  const METRICS = {
    response_p50: ["p50 response time", "250ms"],
    response_p95: ["p95 response time", "250ms"],
    response_p99: ["p99 response time", "250ms"],
    response_p999: ["p99.9 response time", "1s"],
    error_ratio: ["failed", "1%"],
    availability: ["availability", "99%"],
    attempts: ["attempts", "100"],
    agent_silent: ["agent is silent", "2min"],
    agent_lag: ["agent lags behind", "5min"],
    records_lost: ["records lost", "0"],
  };
  const STATES = { firing: ["fires", "bad"], pending: ["pending", "doubt"], ok: ["ok", "good"], no_data: ["no data", "soft"] };
  const RANKS = { firing: 0, pending: 1, no_data: 2, ok: 3 };
  const isBelow = (metric) => metric === "availability" || metric === "attempts";

  const looksAt = ({ metric, threshold, over }) => {
    const name = METRICS[metric]?.[0] ?? metric;
    // The metric of an agent's silence has no time window.
    if (metric === "agent_silent" || metric === "agent_lag") return `${name} for more than ${threshold}`;
    return `${name} ${isBelow(metric) ? "below" : "above"} ${threshold} over ${over}`;
  };
  const meant = (rule) => {
    const where = ["agent", "group", "program", "peer"].filter((name) => rule[name] != null).map((name) => `${name} ${rule[name] || "not known"}`);
    const words = [looksAt(rule)];
    if (rule.for !== "0s") words.push(`for ${rule.for}`);
    if (rule.by !== "none") words.push(`by ${rule.by}`);
    if (where.length) words.push(`of ${where.join(", ")}`);
    return words.join(", ");
  };
  const since = (seconds) => (seconds ? span(fleet.now() / 1000 - seconds) : "–");

  // ---- Firing alerts, and the rules ----

  let shown = "";
  const show = (seen) => {
    const alerts = [...seen.head.alerts].sort((a, b) => RANKS[a.state] - RANKS[b.state] || (a.rule.name < b.rule.name ? -1 : 1));
    const firing = $("alerts-firing");
    const fires = alerts.filter(fleet.isFiring);
    dom.place(
      firing,
      fires.length
        ? fires.map((alert, at) => {
            const box = firing.children[at]?.dataset.rule === alert.rule.name ? firing.children[at] : element("div", "alert");
            box.dataset.rule = alert.rule.name;
            if (!box.children.length) box.append(element("p"), element("p"));
            const who = alert.subjects.filter((one) => one.firing_since_s != null);
            const named = who.slice(0, 10).map((one) => `${one.subject ? `${one.subject}: ` : ""}${one.value_text || "–"}, since ${since(one.firing_since_s)}`);
            dom.say(box.children[0], `${alert.rule.name} fires: ${meant(alert.rule)}.`);
            dom.say(box.children[1], `${named.join("; ")}${who.length > 10 ? `; and ${count(who.length - 10)} more` : ""}.`);
            return box;
          })
        : [firing.querySelector(".quiet") ?? quiet()],
    );
    const signature = JSON.stringify(alerts.map((alert) => [alert.rule, alert.state, alert.subjects.length, alert.subjects[0]?.value_text]));
    if (signature === shown) return;
    shown = signature;
    const rows = alerts.map((alert) => {
      const worst = alert.subjects[0];
      return [alert.rule.name, STATES[alert.state][0], worst?.value_text ?? "–", meant(alert.rule) + (alert.trouble ? `. It cannot be judged: ${alert.trouble}` : ""), ""];
    });
    const nodes = fleet.table($("alerts-rules"), ["rule", "state", "value", "what it means", ""], rows, { left: [1, 3], none: "No rules yet: create one with the form below." });
    nodes.forEach((row, at) => {
      const { rule, state } = alerts[at];
      row.cells[1].classList.add(STATES[state][1]);
      const edit = fleet.button("Edit", () => take(rule));
      edit.setAttribute("aria-label", `Edit ${rule.name}`);
      const remove = fleet.careful("Remove", `Remove ${rule.name}?`, async () => {
        await fleet.attempt(said, () => fleet.api(`alerts/${encodeURIComponent(rule.name)}`, { method: "DELETE" }), `${rule.name} is removed.`);
      });
      remove.setAttribute("aria-label", `Remove ${rule.name}`);
      row.cells[4].append(edit, " ", remove);
    });
  };
  const quiet = () => {
    const box = element("div", "alert quiet");
    box.append(element("p", "", "No firing alerts."));
    return box;
  };

  // ---- The form ----

  const form = $("alerts-form");
  const FIELDS = [
    { id: "name", title: "Name", about: "a-z, 0-9, -, ., _", required: true },
    { id: "metric", title: "Metric", options: Object.entries(METRICS).map(([id, [words]]) => [id, words]) },
    { id: "threshold", title: "Limit", about: "above it; of availability and attempts below it", required: true },
    { id: "over", title: "Over", about: "whole minutes: 5m", of: "5m" },
    { id: "for", title: "Time beyond the limit before it fires", about: "0s: immediately", of: "0s" },
    { id: "ends_at", title: "Recovery limit", about: "empty: the limit itself" },
    { id: "ends_after", title: "Time within the limit before it ends", about: "0s: immediately", of: "0s" },
    { id: "min_attempts", title: "Minimum number of attempts", of: "1" },
    { id: "by", title: "Group by", options: [["none", "all together"], ["agent", "agent"], ["group", "group"], ["program", "program"], ["peer", "peer"]] },
    { id: "group", title: "Only of group", about: "empty: all" },
    { id: "agent", title: "Only of agent", about: "empty: all" },
    { id: "program", title: "Only of program", about: "empty: all" },
    { id: "peer", title: "Only with peer", about: "empty: all" },
    { id: "side", title: "Side", options: [["client", "as clients"], ["server", "as servers"], ["both", "both"]] },
  ];
  const inputs = new Map();
  for (const field of FIELDS) {
    const label = element("label");
    const input = element(field.options ? "select" : "input");
    input.name = field.id;
    if (field.options) fleet.options(input, field.options);
    else {
      input.autocomplete = "off";
      input.spellcheck = false;
      input.required = !!field.required;
      input.value = field.of ?? "";
    }
    label.append(element("span", "", field.title), input);
    const box = element("div");
    box.append(label);
    if (field.about) {
      const about = element("small", "", field.about);
      about.id = `alerts-about-${field.id}`;
      input.setAttribute("aria-describedby", about.id);
      box.append(about);
    }
    form.append(box);
    inputs.set(field.id, input);
  }
  const row = element("div", "row");
  const keep = element("button", "", "Save this rule");
  keep.type = "submit";
  const said = element("p", "said");
  said.setAttribute("role", "status");
  row.append(keep, said);
  form.append(row);
  const hint = () => (inputs.get("threshold").placeholder = METRICS[inputs.get("metric").value][1]);
  inputs.get("metric").addEventListener("input", hint);
  hint();

  const take = (rule) => {
    for (const field of FIELDS) inputs.get(field.id).value = rule[field.id] ?? field.of ?? "";
    dom.say($("alerts-edit"), `The rule ${rule.name}`);
    hint();
    $("alerts-edit").scrollIntoView();
    inputs.get("threshold").focus();
  };
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const rule = {};
    for (const field of FIELDS) {
      const value = inputs.get(field.id).value.trim();
      if (value !== "") rule[field.id] = field.id === "min_attempts" ? Number(value) : value;
    }
    const stored = await fleet.attempt(said, () => fleet.api(`alerts/${encodeURIComponent(rule.name)}`, { method: "PUT", body: rule }));
    if (stored) fleet.tell(said, `${stored.name} is saved. It is evaluated with the next full minute.`);
  });

  // ---- History ----

  const log = async () => {
    const answer = await fleet.api("alert-log?limit=100").catch(() => null);
    if (!answer) return;
    const rows = answer.events.map((event) => logged(event));
    fleet.table($("alerts-log"), ["when", "rule", "", "what"], rows, { left: [1, 2, 3], none: "No alert has fired yet." });
  };
  const WORDS = { firing: "fires", no_data: "no data", resolved: "over" };
  const logged = (event) => [moment(event.at_s * 1e9), event.alert, WORDS[event.event] ?? event.event, event.text];

  fleet.view("alerts", { open: log, again: log, show });
})();
