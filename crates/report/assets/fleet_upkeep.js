// Refusals, tokens, and the state of the manager.
(() => {
  const { $, element, say } = dom;
  const { text } = figures;
  const { count, moment, ago } = fleet;

  // ---- Refusals ----

  const refusals = async () => {
    const answer = await fleet.api("refusals?limit=100").catch(() => null);
    if (!answer) return;
    const named = (why) => why.replaceAll("_", " ");
    fleet.table($("refusals-counts"), ["why", "total"], answer.counts.map((one) => [named(one.why), count(one.count)]), { none: "Nothing was refused." });
    const rows = answer.last.map((one) => [moment(one.at_unix_ns), named(one.why), `${one.status}`, one.agent || "–", one.address, one.path, one.message]);
    fleet.table($("refusals-last"), ["when", "why", "status", "token of", "from", "path", "response"], rows, { left: [1, 3, 4, 5, 6], none: "Nothing was refused." });
  };
  fleet.view("refusals", { open: refusals, again: refusals });

  // ---- Tokens ----

  const form = $("tokens-form");
  const said = $("tokens-said");
  const tokens = async () => {
    const answer = await fleet.attempt(said, () => fleet.api("tokens"), said.textContent);
    if (!answer) return;
    const rows = answer.tokens.map((one) => [one.name, one.role, moment(one.made_unix_ns), one.used_unix_ns ? ago(one.used_unix_ns) : "never", one.revoked_unix_ns ? `revoked ${ago(one.revoked_unix_ns)}` : "good", ""]);
    const nodes = fleet.table($("tokens-table"), ["name", "role", "made", "used", "state", ""], rows, { left: [1, 4], none: "No tokens yet." });
    nodes.forEach((row, at) => {
      const { name, revoked_unix_ns } = answer.tokens[at];
      if (revoked_unix_ns) return row.classList.add("soft");
      const revoke = fleet.careful("Revoke", `Revoke ${name}?`, async () => {
        await fleet.attempt(said, () => fleet.api(`tokens/${encodeURIComponent(name)}`, { method: "DELETE" }), `The tokens of ${name} are revoked.`);
        tokens();
      });
      revoke.setAttribute("aria-label", `Revoke the tokens of ${name}`);
      row.cells[5].append(revoke);
    });
  };
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const { name, role } = Object.fromEntries(new FormData(form));
    const made = await fleet.attempt(said, () => fleet.api("tokens", { method: "POST", body: { name: name.trim(), role } }));
    $("tokens-made").hidden = !made;
    if (!made) return;
    fleet.tell(said, `A token of ${made.name}, as ${made.role}, is created.`);
    say($("tokens-text"), made.token);
    form.reset();
    tokens();
  });
  fleet.view("tokens", {
    open() {
      // The secret is removed from the page, since it is shown only once.
      $("tokens-made").hidden = true;
      say($("tokens-text"), "");
      fleet.tell(said, "");
      tokens();
    },
  });

  // ---- Upkeep ----

  const upkeep = async () => {
    const [health, retention, days] = await Promise.all(["health", "retention", "days"].map((path) => fleet.api(path).catch(() => null)));
    if (!health || !retention || !days) return;
    const limits = [retention.keep_for_s == null ? "" : `for ${fleet.span(retention.keep_for_s)}`, retention.keep_bytes == null ? "" : `at most ${text(retention.keep_bytes, "bytes")}`].filter(Boolean);
    fleet.facts($("upkeep-facts"), [
      ["Runs since", ago(health.started_unix_ns).replace(" ago", ""), `version ${health.version}`],
      ["Rows in files", count(retention.rows), `${count(retention.parts)} files, ${text(retention.bytes, "bytes")}`],
      ["Days", count(retention.days), retention.oldest_day ? `since ${retention.oldest_day}` : ""],
      ["Retention", limits.length ? limits[0] : "unlimited", limits[1] ?? ""],
      ["Waiting", count(health.queue.rows), `rows, in ${count(health.queue.batches)} batches`],
      ["Newest file", health.last_part_unix_ns ? ago(health.last_part_unix_ns) : "–"],
      ["Index", text(health.index_bytes, "bytes")],
      ["Disk", text(health.disk_free_bytes, "bytes"), "free"],
      ["Memory", text(health.resident_bytes, "bytes"), `${count(health.threads ?? 0)} threads`],
      ["Pages", count(health.viewers), "open"],
    ]);
    const rows = days.days.map((day) => [day.day, count(day.parts), count(day.rows), text(day.bytes, "bytes"), moment(day.first_unix_ns).slice(11), moment(day.last_unix_ns).slice(11)]);
    const nodes = fleet.table($("upkeep-days"), ["day", "files", "rows", "size", "first", "last"], rows, { none: "No files yet." });
    nodes.forEach((row, at) => {
      const { day } = days.days[at];
      const open = fleet.button(day, async () => {
        const found = await fleet.api(`days/${encodeURIComponent(day)}`).catch(() => null);
        const list = element("ul", "files");
        for (const part of found?.parts ?? []) {
          const item = element("li");
          const link = fleet.link(part.file, `api/1/days/${encodeURIComponent(day)}/${encodeURIComponent(part.file)}`);
          link.download = `${day}-${part.file}`;
          item.append(link, ` ${count(part.rows)} rows, ${text(part.bytes, "bytes")}`);
          list.append(item);
        }
        $("upkeep-days").querySelector(".files")?.remove();
        $("upkeep-days").append(list);
        list.querySelector("a")?.focus();
      });
      open.className = "plain";
      open.setAttribute("aria-label", `Files of ${day}`);
      row.cells[0].replaceChildren(open);
    });
  };
  fleet.view("upkeep", { open: upkeep, again: () => !$("upkeep-days").querySelector(".files") && upkeep() });
})();
