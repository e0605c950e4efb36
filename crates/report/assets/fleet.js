"use strict";
// The manager's page: functions common to all its parts. The server sends the state of all agents and alerts, and then
// changes (crates/manager/src/api/overview.rs); everything else comes from the API. Text is inserted as text, never as markup.
const fleet = (() => {
  const { $, plain, element, say, place } = dom;
  const { text } = figures;
  let seen = null;
  let last = "";
  // The manager's clock less this machine's, in ms.
  let clockOff = 0;
  const views = new Map();
  let current = { name: "", params: new URLSearchParams() };

  // ---- Requests ----

  // Returns the JSON response, or throws the manager's error message.
  const api = async (path, { method = "GET", body } = {}) => {
    const options = { method, headers: {} };
    if (body !== undefined) {
      options.headers["Content-Type"] = "application/json";
      options.body = JSON.stringify(body);
    }
    let answer;
    try {
      answer = await fetch(`api/1/${path}`, options);
    } catch {
      throw new Error("The manager cannot be reached. Is it running?");
    }
    const payload = answer.status === 204 ? null : await answer.json().catch(() => null);
    if (answer.ok) return payload;
    throw new Error(payload?.message ?? `The manager responded with status ${answer.status}.`);
  };
  const query = (fields) => {
    const given = Object.entries(fields).filter(([, value]) => value !== "" && value != null);
    return given.length ? `?${new URLSearchParams(given)}` : "";
  };

  // ---- Figures ----

  const now = () => Date.now() + clockOff;
  const two = (number) => String(number).padStart(2, "0");
  // A time of the manager's clock, as RFC 3339 without fractions.
  const moment = (ns) => {
    if (ns == null) return "–";
    const at = new Date(ns / 1e6);
    if (Number.isNaN(at.getTime())) return "–";
    return `${at.getUTCFullYear()}-${two(at.getUTCMonth() + 1)}-${two(at.getUTCDate())} ${two(at.getUTCHours())}:${two(at.getUTCMinutes())}:${two(at.getUTCSeconds())}`;
  };
  const span = (seconds) => {
    const [days, hours, minutes] = [seconds / 86400, seconds / 3600, seconds / 60];
    if (days >= 2) return `${Math.floor(days)} days`;
    if (hours >= 2) return `${Math.floor(hours)} h`;
    if (minutes >= 2) return `${Math.floor(minutes)} min`;
    return `${Math.max(0, Math.floor(seconds))} s`;
  };
  const ago = (ns) => (ns == null ? "–" : `${span((now() - ns / 1e6) / 1000)} ago`);
  const off = (ns) => {
    if (Math.abs(ns) < 1e9) return text(Math.abs(ns), "ns");
    return `${span(Math.abs(ns) / 1e9)} ${ns > 0 ? "ahead" : "behind"}`;
  };
  const count = (number) => text(number, "count");

  // ---- Common parts ----

  // Names and values; a value may be `[text, note, tone]`.
  const facts = (holder, list) => {
    const into = holder.querySelector("dl");
    place(
      into,
      list.map(([name, figure, note = "", tone = ""], at) => {
        const box = into.children[at] ?? element("div");
        if (!box.children.length) box.append(element("dt"), element("dd"), element("dd", "note"));
        say(box.children[0], name);
        say(box.children[1], figure);
        box.children[1].className = tone;
        say(box.children[2], note);
        return box;
      }),
    );
  };
  const table = (holder, head, rows, options = {}) => {
    // Keeps the keyboard focus inside the table.
    const held = holder.contains(document.activeElement) && document.activeElement.classList.contains("scroll");
    if (!rows.length) holder.replaceChildren(element("p", "note", options.none ?? "No entries."));
    else dom.fillTable(holder, { head, rows, left: options.left }, options.className);
    if (held) holder.querySelector(".scroll")?.focus();
    return [...holder.querySelectorAll("tbody tr")];
  };
  const link = (words, hash) => {
    const node = element("a", "", words);
    node.href = hash;
    return node;
  };
  // Replaces the first text of a row by a link.
  const linked = (rows, hashOf) =>
    rows.forEach((row, at) => {
      const cell = row.cells[0];
      cell.replaceChildren(link(cell.textContent, hashOf(at)));
    });
  const button = (words, act) => {
    const node = element("button", "", words);
    node.type = "button";
    node.addEventListener("click", act);
    return node;
  };
  // A button that requires a second click.
  const careful = (words, sure, act) => {
    const node = button(words, () => {
      if (node.dataset.sure) return act();
      node.dataset.sure = "1";
      say(node, sure);
      setTimeout(() => {
        delete node.dataset.sure;
        say(node, words);
      }, 5000);
    });
    return node;
  };
  const tell = (node, words, isTrouble = false) => {
    say(node, words);
    node.classList.toggle("bad", isTrouble);
  };
  // Runs an asynchronous action, and shows its result or error.
  const attempt = async (node, act, done = "") => {
    try {
      const outcome = await act();
      tell(node, done);
      return outcome;
    } catch (error) {
      tell(node, error.message, true);
      return null;
    }
  };

  // ---- Selection of the visible part ----

  const view = (name, parts) => views.set(name, parts);
  const read = () => {
    const [name, rest = ""] = location.hash.slice(1).split("?");
    return { name: views.has(name) ? name : "agents", params: new URLSearchParams(rest) };
  };
  const go = () => {
    if (location.hash === "#main") return;
    const before = current.name;
    current = read();
    for (const name of views.keys()) $(`view-${name}`).hidden = name !== current.name;
    const shownAs = current.name === "agent" ? "agents" : current.name;
    for (const entry of $("nav").children) {
      if (entry.hash === `#${shownAs}`) {
        entry.setAttribute("aria-current", "page");
        // On a phone the list of parts is wider than the screen.
        entry.parentElement.scrollLeft = entry.offsetLeft - entry.parentElement.offsetLeft - 40;
      } else entry.removeAttribute("aria-current");
    }
    views.get(current.name).open?.(current.params);
    if (seen) views.get(current.name).show?.(seen);
    if (before && before !== current.name) {
      scrollTo(0, 0);
      $("main").focus({ preventScroll: true });
    }
  };

  // ---- Messages from the manager ----

  const firing = () => (seen?.head.alerts ?? []).filter(isFiring);
  const isFiring = (alert) => alert.state === "firing";

  let spoken = "";
  const head = () => {
    const agents = Object.values(seen.agents);
    const connected = agents.filter((agent) => agent.state === "connected").length;
    const title = agents.length ? `${count(connected)} of ${count(agents.length)} agents are connected` : "No agent yet";
    const fires = firing().length;
    const status = fires ? `${count(fires)} firing ${fires === 1 ? "alert" : "alerts"}` : "No firing alerts";
    say($("title"), title);
    say($("status"), status);
    $("status").className = `status ${fires ? "bad" : "good"}`;
    const left = seen.head.agents_left_out;
    const lead = agents.length
      ? left && `And ${count(left)} more agents are not on this page: the API has them.`
      : "Create a token under Tokens, or with `yamabiko tap manager token add NAME`. Then start an agent with `yamabiko tap agent --manager URL --token FILE`.";
    say($("lead"), lead || "");
    $("lead").hidden = !lead;
    document.title = plain(`${fires ? `(${fires}) ` : ""}${title} · yamabiko manager`);
    // Screen readers announce this text only when it changes, not with every figure.
    const words = `${title}. ${status}.`;
    if (words !== spoken) say($("aloud"), (spoken = words));
  };
  const show = () => {
    head();
    views.get(current.name)?.show?.(seen);
    document.body.dataset.ready = "1";
  };
  const apply = (step) => {
    Object.assign(seen.head, step.head);
    for (const [name, changed] of Object.entries(step.agents)) seen.agents[name] = { ...seen.agents[name], ...changed };
    for (const name of step.gone) delete seen.agents[name];
  };
  const lose = (words) => {
    say($("lost"), words);
    $("lost").hidden = !words;
  };
  let frame = 0;
  const connect = () => {
    const events = new EventSource(`events${last ? `?after=${encodeURIComponent(last)}` : ""}`);
    const take = (event, change) => {
      last = event.lastEventId;
      lose("");
      change(JSON.parse(event.data));
      clockOff = seen.head.now_unix_ns / 1e6 - Date.now();
      // Drawn once per frame, and not while the page is hidden.
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        show();
      });
    };
    events.addEventListener("open", () => lose(""));
    events.addEventListener("snapshot", (event) => take(event, (whole) => (seen = whole)));
    events.addEventListener("step", (event) => take(event, apply));
    events.addEventListener("error", () => {
      lose("The connection to the manager is lost; trying again. The page shows the last received state.");
      // Some refusals close the event stream permanently; the page then connects again.
      if (events.readyState === EventSource.CLOSED) setTimeout(connect, 2000);
    });
  };

  const start = () => {
    addEventListener("hashchange", go);
    $("skip").addEventListener("click", (event) => {
      event.preventDefault();
      $("main").focus();
    });
    go();
    connect();
    // Data that is requested repeatedly while it is visible.
    setInterval(() => !document.hidden && views.get(current.name).again?.(current.params), 10000);
  };

  return {
    api, query, now, moment, span, ago, off, count, facts, table, link, linked, button, careful, tell, attempt, view, firing, isFiring, start,
    seen: () => seen,
    isShown: (name) => current.name === name,
  };
})();
