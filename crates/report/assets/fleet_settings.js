// Settings: the form of one agent, and that of a group.
(() => {
  const { $, element, say } = dom;

  const listed = (words) => words.split(/[\s,]+/).filter(Boolean);
  const FIELDS = [
    { id: "group", title: "Group", about: "a name; empty: none", of: (agent) => agent.group, read: (words) => words.trim() },
    { id: "only", title: "Only connections with", about: "ports, peers or both: 443, 192.0.2.0/24, 192.0.2.7:80; empty: all", of: (agent) => (agent.settings?.only ?? []).join(", "), read: listed },
    { id: "programs", title: "Only programs", about: "their short names; empty: all", of: (agent) => (agent.settings?.programs ?? []).join(", "), read: (words) => words.split(",").map((word) => word.trim()).filter(Boolean) },
    { id: "share", title: "Share of connections", about: "in per cent, above 0 and at most 100", of: (agent) => String(+(100 * (agent.settings?.share ?? 1)).toPrecision(6)), read: (words) => Number(words.replace(",", ".")) / 100 },
  ];
  let forms = 0;

  // A form of these fields. `send` receives the changed fields and returns the text to show.
  const form = (fields, send, save) => {
    const node = element("form", "fields");
    const number = ++forms;
    const inputs = new Map();
    for (const field of fields) {
      const label = element("label");
      label.append(element("span", "", field.title));
      const input = element("input");
      input.name = field.id;
      input.autocomplete = "off";
      input.spellcheck = false;
      const about = element("small", "", field.about);
      about.id = `about-${number}-${field.id}`;
      input.setAttribute("aria-describedby", about.id);
      label.append(input);
      const box = element("div");
      box.append(label, about);
      node.append(box);
      inputs.set(field.id, input);
    }
    const row = element("div", "row");
    const button = element("button", "", save);
    button.type = "submit";
    const said = element("p", "said");
    said.setAttribute("role", "status");
    row.append(button, said);
    node.append(row);
    node.addEventListener("submit", async (event) => {
      event.preventDefault();
      button.disabled = true;
      const words = await fleet.attempt(said, () => send(inputs));
      button.disabled = false;
      if (words) fleet.tell(said, words);
    });
    return { node, inputs, said };
  };

  const changedOf = (fields, inputs, isChanged) => {
    const change = {};
    for (const field of fields) {
      const input = inputs.get(field.id);
      if (isChanged(field, input)) change[field.id] = field.read(input.value);
    }
    return change;
  };

  // ---- One agent ----

  let of = null;
  fleet.settingsOf = (holder, agent) => {
    if (!holder.querySelector("form")) {
      const made = form(
        FIELDS,
        async (inputs) => {
          const change = changedOf(FIELDS, inputs, (field, input) => input.value !== field.of(of.agent));
          if (!Object.keys(change).length) return "Nothing was changed.";
          const changed = await fleet.api(`agents/${encodeURIComponent(of.agent.name)}/settings`, { method: "PUT", body: change });
          of.agent = { ...of.agent, ...changed };
          for (const field of FIELDS) inputs.get(field.id).value = field.of(of.agent);
          return `Stored as version ${changed.settings.version}. The agent receives it with its next batch.`;
        },
        "Save",
      );
      of = { agent, made };
      for (const field of FIELDS) made.inputs.get(field.id).value = field.of(agent);
      const stand = element("p", "note");
      stand.id = "agent-goes-by";
      holder.replaceChildren(made.node, stand);
    }
    // A field that is being edited keeps its text; other fields follow the stored settings.
    for (const field of FIELDS) {
      const input = of.made.inputs.get(field.id);
      if (input !== document.activeElement && input.value === field.of(of.agent)) input.value = field.of(agent);
    }
    of.agent = agent;
    const configured = agent.settings?.version ?? 1;
    const is_current = agent.settings_seen === configured;
    say($("agent-goes-by"), is_current ? `The agent uses version ${configured}.` : `Version ${configured} is configured; the agent uses ${agent.settings_seen || "none yet"}.`);
  };

  // ---- A group ----

  const GROUP_FIELDS = FIELDS.filter((field) => field.id !== "group");
  const made = form(
    GROUP_FIELDS,
    async (inputs) => {
      const group = $("settings-group").value;
      if (!group) throw new Error("No agent is in a group yet: assign one on its page.");
      const change = changedOf(GROUP_FIELDS, inputs, (field) => boxes.get(field.id).checked);
      if (!Object.keys(change).length) throw new Error("No field is selected: other fields stay unchanged.");
      const { agents } = await fleet.api(`groups/${encodeURIComponent(group)}/settings`, { method: "PUT", body: change });
      return `Stored for ${fleet.count(agents.length)} agents. Each receives it with its next batch.`;
    },
    "Save for the whole group",
  );
  const boxes = new Map();
  for (const field of GROUP_FIELDS) {
    const input = made.inputs.get(field.id);
    const box = element("input");
    box.type = "checkbox";
    box.setAttribute("aria-label", `Change: ${field.title}`);
    box.addEventListener("change", () => (input.disabled = !box.checked));
    input.disabled = true;
    if (field.id === "share") input.value = "100";
    input.before(box);
    input.parentElement.className = "ticked";
    boxes.set(field.id, box);
  }
  $("settings-form").append(made.node);

  const show = (seen) => {
    fleet.options($("settings-group"), fleet.groups(seen).map((group) => [group, group]));
    const group = $("settings-group").value;
    const agents = Object.values(seen.agents).filter((agent) => group && agent.group === group);
    agents.sort((a, b) => (a.name < b.name ? -1 : 1));
    const signature = JSON.stringify(agents.map((agent) => [agent.name, agent.settings, agent.settings_seen]));
    if ($("settings-agents").dataset.has === signature) return;
    $("settings-agents").dataset.has = signature;
    const rows = agents.map((agent) => [
      agent.name,
      ...FIELDS.slice(1).map((field) => (field.of(agent) || "all") + (field.id === "share" ? " %" : "")),
      `${agent.settings?.version ?? "–"}`,
      `${agent.settings_seen || "–"}`,
    ]);
    const nodes = fleet.table($("settings-agents"), ["agent", "only", "programs", "share", "version configured", "version in use"], rows, { left: [1, 2], none: "No agent is in a group yet." });
    fleet.linked(nodes, (at) => `#agent?${new URLSearchParams({ name: agents[at].name })}`);
  };
  $("settings-controls").addEventListener("input", () => fleet.seen() && show(fleet.seen()));
  $("settings-controls").addEventListener("submit", (event) => event.preventDefault());
  fleet.view("settings", { show });
})();
