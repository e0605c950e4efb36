// The live page: draws the state that the server sends, and applies its changes. The script has no code specific to runs;
// crates/report/src/live/state.rs defines a state. Text is inserted as text, never as markup.
(() => {
  const { color, FONT, text, labels, powers } = figures;
  const { $, plain, element, say, place } = dom;
  const root = document.body.dataset.root;
  // Number of failed checks shown before the others are folded.
  const DOUBTS = 3;
  let state = null;
  let last = "";
  let paused = false;
  let zoom = null;
  // Sections and pieces on the page, by id.
  const sectionNodes = new Map();
  const made = new Map();

  // ---- Time: one axis for all charts ----

  const seconds = () => +$("window").value;
  let ends = [0, 1];
  const measure = () => {
    let [first, beyond] = [Infinity, -Infinity];
    for (const { piece } of made.values()) {
      const xs = piece.kind === "chart" ? piece.xs : piece.kind === "heat" ? piece.columns.map((column) => column.x) : [];
      if (!xs.length) continue;
      const width = piece.kind === "heat" ? piece.seconds : xs.length > 1 ? xs[1] - xs[0] : 1;
      first = Math.min(first, xs[0]);
      beyond = Math.max(beyond, xs[xs.length - 1] + width);
    }
    ends = beyond > first ? [first, beyond] : [0, 1];
  };
  const view = () => {
    if (zoom) return zoom;
    return seconds() ? [Math.max(ends[0], ends[1] - seconds()), ends[1]] : ends;
  };
  const setZoom = (to) => {
    zoom = to;
    $("unzoom").hidden = !zoom;
    made.forEach((one) => one.touch?.());
  };

  // ---- Charts ----

  const axis = () => ({
    stroke: () => color("--soft"),
    font: FONT,
    grid: { stroke: () => color("--line"), width: 1 },
    ticks: { stroke: () => color("--line"), width: 1, size: 4 },
  });
  const height = (figure) => (figure.clientWidth < 480 ? 190 : figure.classList.contains("wide") ? 250 : 210);
  const linear = uPlot.paths.linear();
  const stepped = uPlot.paths.stepped({ align: 1 });
  // A few seconds are drawn as steps, as in the report; with many seconds a step is narrower than a pixel.
  const paths = (u, at, from, to) => (to - from > 200 ? linear : stepped)(u, at, from, to);

  const shade = (one) => (u) => {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.globalAlpha = 0.09;
    ctx.fillStyle = color("--soft");
    for (const [from, to] of one.piece.bands) {
      const left = Math.max(u.valToPos(from, "x", true), bbox.left);
      const right = Math.min(u.valToPos(to, "x", true), bbox.left + bbox.width);
      if (right > left) ctx.fillRect(left, bbox.top, right - left, bbox.height);
    }
    ctx.restore();
  };

  const common = (one, figure) => ({
    width: Math.max(figure.clientWidth, 200),
    height: height(figure),
    padding: [8, 18, 0, 0],
    cursor: {
      y: false,
      sync: { key: "time", setSeries: false },
      drag: { x: true, y: false, setScale: false },
      points: { size: 6 },
      bind: { dblclick: () => () => setZoom(null) },
    },
    hooks: {
      setSelect: [
        (u) => {
          if (u.select.width < 4) return;
          const from = u.posToVal(u.select.left, "x");
          const to = u.posToVal(u.select.left + u.select.width, "x");
          u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          setZoom([from, to]);
        },
      ],
    },
  });

  // Without a cursor, the legend shows the latest values.
  const latest = (u) => {
    if (u.cursor.left >= 0 || !u.data[0].length) return;
    let at = u.data[0].length - 2;
    while (at > 0 && u.data.slice(1).every((ys) => ys[at] == null)) at--;
    u.setLegend({ idx: Math.max(at, 0) }, false);
  };

  const range = (piece) => (u, low, high) => {
    if (low == null || high == null) return piece.log ? [1e6, 1e7] : [0, 1];
    if (piece.log) return [low / 1.3, high * 1.3];
    return [0, high > 0 ? high * 1.08 : 1];
  };

  const plotted = (piece) => {
    // The last second is drawn until its end.
    const count = piece.xs.length;
    if (!count) return [[], ...piece.ys.map(() => [])];
    const width = count > 1 ? piece.xs[1] - piece.xs[0] : 1;
    return [[...piece.xs, piece.xs[count - 1] + width], ...piece.ys.map((ys) => [...ys, ys[count - 1]])];
  };

  const draw = {
    chart(one, figure) {
      const { piece } = one;
      const options = common(one, figure);
      const series = piece.series.map((line) => ({
        label: line.name,
        stroke: () => color(`--c${line.color}`),
        fill: line.fill ? () => `${color(`--c${line.color}`)}24` : undefined,
        width: line.dash ? 1.5 : 1.75,
        dash: line.dash ? [6, 5] : undefined,
        points: { show: false },
        paths,
        value: (u, v) => text(v, piece.quantity),
      }));
      options.hooks.drawClear = [shade(one)];
      options.hooks.setCursor = [latest];
      Object.assign(options, {
        legend: {
          // Colours as CSS, so that they follow the reader's choice of dark or light.
          markers: {
            width: 0,
            fill: (u, at) => {
              const line = piece.series[at - 1];
              const tone = `var(--c${line.color})`;
              return line.dash ? `repeating-linear-gradient(90deg, ${tone} 0 4px, transparent 4px 7px)` : tone;
            },
          },
        },
        scales: { x: { time: false, range: () => view() }, y: piece.log ? { distr: 3, range: range(piece) } : { range: range(piece) } },
        axes: [
          { ...axis(), size: 24, space: 70, grid: { show: false }, values: (u, ticks) => labels(ticks, "s", false).map((label) => label && `${label} s`) },
          {
            ...axis(),
            size: (u, values) => 14 + 7 * Math.max(3, ...(values ?? []).map((value) => value.length)),
            values: (u, ticks) => labels(ticks, piece.quantity, piece.log),
            ...(piece.log ? { splits: powers, filter: (u, ticks) => ticks } : {}),
          },
        ],
        series: [{ label: "time", value: (u, v) => text(v, "s") }, ...series],
      });
      return new uPlot(options, plotted(piece), one.holder);
    },

    heat(one, figure) {
      const { piece } = one;
      const options = common(one, figure);
      const [low, high] = [Math.max(piece.edges[0], 1), piece.edges[piece.edges.length - 1]];
      options.hooks.drawClear = [(u) => paint(u, one.piece)];
      options.hooks.setCursor = [(u) => say(one.reading, reading(u, one.piece))];
      Object.assign(options, {
        legend: { show: false },
        scales: { x: { time: false, range: () => view() }, y: { distr: 3, range: () => [low, high] } },
        axes: [
          { ...axis(), size: 24, space: 70, grid: { show: false }, values: (u, ticks) => labels(ticks, "s", false).map((label) => label && `${label} s`) },
          {
            ...axis(),
            size: (u, values) => 14 + 7 * Math.max(3, ...(values ?? []).map((value) => value.length)),
            grid: { show: false },
            values: (u, ticks) => labels(ticks, "ns", true),
            splits: powers,
            filter: (u, ticks) => ticks,
          },
        ],
        series: [{}, { paths: () => null, points: { show: false } }],
      });
      return new uPlot(options, marks(piece), one.holder);
    },
  };
  // The library needs values for its scales; these are the corners of the heat map.
  const marks = (piece) => {
    const xs = piece.columns.map((column) => column.x);
    if (xs.length) xs.push(xs[xs.length - 1] + piece.seconds);
    return [xs, xs.map((x, at) => piece.edges[at % 2 ? piece.edges.length - 1 : 0] || 1)];
  };

  const paint = (u, piece) => {
    const { ctx, bbox } = u;
    const [from, to] = view();
    const y = piece.edges.map((edge) => Math.round(u.valToPos(Math.max(edge, 1), "y", true)));
    const tone = color("--c0");
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.fillStyle = tone;
    for (const { x, cells } of piece.columns) {
      if (x + piece.seconds < from || x > to) continue;
      const left = Math.round(u.valToPos(x, "x", true));
      const width = Math.max(1, Math.round(u.valToPos(x + piece.seconds, "x", true)) - left);
      let most = 0;
      for (let at = 1; at < cells.length; at += 2) most = Math.max(most, cells[at]);
      for (let at = 0; at < cells.length; at += 2) {
        const [bottom, top] = [y[cells[at]], y[cells[at] + 1]];
        ctx.globalAlpha = 0.1 + 0.9 * Math.sqrt(cells[at + 1] / most);
        ctx.fillRect(left, top, width, Math.max(1, bottom - top));
      }
    }
    ctx.restore();
  };

  const cellAt = (piece, x, y) => {
    const column = piece.columns.find((column) => x >= column.x && x < column.x + piece.seconds);
    const row = piece.edges.findIndex((edge, at) => y >= edge && y < (piece.edges[at + 1] ?? 0));
    if (!column || row < 0) return null;
    let count = 0;
    for (let at = 0; at < column.cells.length; at += 2) if (column.cells[at] === row) count = column.cells[at + 1];
    return { x: column.x, row, count };
  };
  const reading = (u, piece) => {
    const { left, top } = u.cursor;
    const cell = left >= 0 && top >= 0 ? cellAt(piece, u.posToVal(left, "x"), u.posToVal(top, "y")) : null;
    if (!cell) return "";
    const [from, to] = [piece.edges[cell.row], piece.edges[cell.row + 1]];
    return `${text(cell.x, "s")}: ${text(cell.count, "count")} requests took ${text(from, "ns")} to ${text(to, "ns")}`;
  };

  // ---- Text alternative of a chart ----

  const now = (piece) => {
    if (piece.kind === "heat") return `${piece.columns.length} columns.`;
    const values = piece.series.map((line, at) => {
      const ys = piece.ys[at];
      for (let back = ys.length - 1; back >= 0; back--) if (ys[back] != null) return `${line.name} ${text(ys[back], piece.quantity)}`;
      return null;
    });
    return `Latest: ${values.filter(Boolean).join(", ") || "nothing yet"}.`;
  };
  // The same values as table rows, limited in number.
  const rowsOf = (piece) => {
    if (piece.kind === "heat") {
      const share = (cells, quantile) => {
        let total = 0;
        for (let at = 1; at < cells.length; at += 2) total += cells[at];
        let below = 0;
        for (let at = 0; at < cells.length; at += 2) {
          below += cells[at + 1];
          if (below >= total * quantile) return text(piece.edges[cells[at] + 1], "ns");
        }
        return "–";
      };
      const every = Math.ceil(piece.columns.length / 40);
      const rows = piece.columns.filter((column, at) => at % every === 0);
      return {
        head: ["time", "half under", "90 % under", "99 % under"],
        rows: rows.map(({ x, cells }) => [text(x, "s"), ...[0.5, 0.9, 0.99].map((quantile) => share(cells, quantile))]),
      };
    }
    const every = Math.ceil(piece.xs.length / 40);
    const rows = piece.xs.map((x, at) => at).filter((at) => at % every === 0);
    return {
      head: ["time", ...piece.series.map((line) => line.name)],
      rows: rows.map((at) => [text(piece.xs[at], "s"), ...piece.ys.map((ys) => text(ys[at], piece.quantity))]),
    };
  };

  // ---- Pieces ----

  const fillTable = (holder, table, className) => dom.fillTable(holder, { ...table, root }, className);

  // Markup of the program's own plots: only shapes and text elements are accepted.
  const SHAPES = new Set(["svg", "title", "desc", "g", "path", "line", "rect", "circle", "text", "tspan", "defs", "clippath", "marker", "polyline", "polygon", "ellipse"]);
  const svgOf = (markup) => {
    const parsed = new DOMParser().parseFromString(markup.replace(/^<svg /, '<svg xmlns="http://www.w3.org/2000/svg" '), "image/svg+xml");
    const svg = parsed.documentElement;
    for (const node of [svg, ...svg.querySelectorAll("*")]) {
      if (!SHAPES.has(node.localName.toLowerCase())) {
        node.remove();
        continue;
      }
      for (const { name } of [...node.attributes]) if (/^on|href|style/i.test(name)) node.removeAttribute(name);
    }
    return svg.localName === "svg" ? document.importNode(svg, true) : element("span");
  };

  const caption = (figure, title, about) => {
    const line = element("figcaption");
    line.append(element("b", "", title), element("span", "", about));
    figure.append(line);
  };

  const seen = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        const one = made.get(entry.target.dataset.id);
        if (one) {
          one.isSeen = entry.isIntersecting;
          if (one.isSeen && one.isDue) schedule(one);
        }
      }
    },
    { rootMargin: "200px" },
  );
  const sized = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const plot = made.get(target.dataset.id)?.plot;
      if (plot && target.clientWidth > 0 && target.clientWidth !== plot.width) plot.setSize({ width: target.clientWidth, height: height(target) });
    }
  });

  // A chart is drawn only while it is visible, and at most once per frame.
  const due = new Set();
  let frame = 0;
  const schedule = (one) => {
    one.isDue = true;
    if (paused || !one.isSeen || document.hidden) return;
    due.add(one);
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      for (const each of due) each.render();
      due.clear();
    });
  };

  const charted = (piece) => {
    const figure = element("figure", piece.kind === "heat" || piece.wide ? "wide" : "half");
    figure.dataset.id = piece.id;
    caption(figure, piece.title, piece.about);
    const one = { piece, node: figure, plot: null, holder: element("div"), reading: element("div", "reading"), isSeen: false, isDue: true, announced: -Infinity };
    figure.append(one.holder);
    if (piece.kind === "heat") figure.append(one.reading);
    one.holder.setAttribute("role", "img");
    const details = element("details");
    const rows = element("div");
    details.append(element("summary", "", "As a table"), rows);
    figure.append(details);
    const fill = () => details.open && fillTable(rows, piece === one.piece ? rowsOf(piece) : rowsOf(one.piece));
    details.addEventListener("toggle", fill);
    one.render = () => {
      one.isDue = false;
      const signature = JSON.stringify([one.piece.series, one.piece.log, one.piece.edges, one.piece.quantity]);
      if (one.plot && one.signature !== signature) {
        one.plot.destroy();
        one.plot = null;
      }
      if (!one.plot) {
        one.signature = signature;
        one.plot = draw[one.piece.kind](one, figure);
        const legend = one.plot.root.querySelector(".u-legend");
        if (legend) one.plot.root.prepend(legend);
        one.plot.over.title = "Drag to zoom, double-click to reset";
      } else one.plot.setData(one.piece.kind === "heat" ? marks(one.piece) : plotted(one.piece));
      if (one.piece.kind === "chart") latest(one.plot);
      // Text is updated rarely, because someone may be reading it.
      if (performance.now() - one.announced > 5000) {
        one.announced = performance.now();
        one.holder.setAttribute("aria-label", `${one.piece.title}. ${one.piece.about} ${now(one.piece)}`);
        fill();
      }
    };
    one.show = (next) => {
      one.piece = next;
      say(figure.querySelector("figcaption b"), next.title);
      say(figure.querySelector("figcaption span"), next.about);
      schedule(one);
    };
    one.touch = () => schedule(one);
    one.forget = () => {
      seen.unobserve(figure);
      sized.unobserve(figure);
      due.delete(one);
      one.plot?.destroy();
    };
    seen.observe(figure);
    sized.observe(figure);
    return one;
  };

  const make = {
    chart: charted,
    heat: charted,
    table(piece) {
      const node = element("div", Math.max(piece.head.length, piece.rows[0]?.length ?? 0) <= 3 && !piece.links ? "half" : "");
      const one = { piece, node };
      one.show = (next) => {
        one.piece = next;
        if (!paused) fillTable(node, next);
      };
      one.show(piece);
      return one;
    },
    text(piece) {
      const one = { piece, node: element(piece.verbatim ? "pre" : "p", "", piece.text) };
      one.show = (next) => {
        one.piece = next;
        say(one.node, next.text);
      };
      return one;
    },
    drawing(piece) {
      const node = element("figure", piece.wide ? "wide" : "half");
      const one = { piece, node };
      one.show = (next) => {
        one.piece = next;
        if (paused) return;
        const [large, small] = [element("div", "large"), element("div", "small")];
        large.append(svgOf(next.large));
        small.append(svgOf(next.small));
        node.replaceChildren();
        caption(node, next.title, next.about);
        node.append(large, small);
      };
      one.show(piece);
      return one;
    },
  };

  const pieceNode = (piece) => {
    let one = made.get(piece.id);
    if (one && one.piece.kind === piece.kind) {
      if (one.piece !== piece) one.show(piece);
      return one.node;
    }
    one?.forget?.();
    one = make[piece.kind](piece);
    made.set(piece.id, one);
    return one.node;
  };

  const sectionNode = (section) => {
    let node = sectionNodes.get(section.id);
    if (!node) {
      node = element("section");
      node.append(element("h2"), element("div", "pieces"));
      node.firstChild.id = `heading-${sectionNodes.size}`;
      sectionNodes.set(section.id, node);
    }
    const [heading, pieces] = node.children;
    say(heading, section.heading);
    heading.hidden = !section.heading;
    if (section.heading) node.setAttribute("aria-labelledby", heading.id);
    place(pieces, section.pieces.map(pieceNode));
    // Small tables are placed side by side.
    const isSmall = (piece) => (piece.kind === "table" && (piece.rows[0]?.length ?? 0) <= 2 && !piece.links) || (piece.kind === "text" && !piece.verbatim && piece.text.length < 120);
    node.classList.toggle("narrow", section.pieces.every(isSmall));
    return node;
  };

  // ---- The head of the page ----

  const showFacts = () => {
    const list = $("facts").firstElementChild;
    place(
      list,
      state.facts.map((fact, at) => {
        const box = list.children[at] ?? element("div");
        if (!box.children.length) box.append(element("dt"), element("dd"), element("dd", "note"));
        const [name, figure, note] = box.children;
        say(name, fact.name);
        say(figure, fact.text);
        figure.className = fact.tone;
        if (fact.value == null) delete figure.dataset.value;
        else figure.dataset.value = fact.value;
        say(note, fact.note);
        return box;
      }),
    );
    $("facts").hidden = !state.facts.length;
  };

  let judgedAs = "";
  const showJudged = () => {
    const { judged } = state;
    const as = JSON.stringify(judged ?? null);
    if (as === judgedAs) return;
    judgedAs = as;
    const section = $("judged");
    section.hidden = !judged;
    if (!judged) return section.replaceChildren();
    const isOpen = [...section.querySelectorAll("details")].pop()?.open ?? false;
    const box = element("div", `verdict ${judged.tone}`);
    const line = element("p");
    line.append(element("strong", "", judged.word), plain(` ${judged.summary}`));
    box.append(line);
    const checks = (rows) => {
      const holder = element("div");
      fillTable(holder, { head: ["check", "result", "figure", "limit", "why"], rows: rows.map((row) => row.cells) }, "checks");
      holder.querySelectorAll("tbody tr").forEach((row, at) => {
        row.children[1].className = rows[at].tone;
        row.children[2].className = row.children[3].className = "figure";
        row.children[4].className = "why";
      });
      return holder;
    };
    const fold = (summary, rows, opens) => {
      const details = element("details");
      details.open = opens;
      details.append(element("summary", "", summary), checks(rows));
      box.append(details);
    };
    const [first, more] = [judged.open.slice(0, DOUBTS), judged.open.slice(DOUBTS)];
    if (first.length) box.append(checks(first));
    if (more.length) fold(`And ${more.length} more that did not pass`, more, false);
    if (judged.rest.length) fold(first.length ? "The other checks" : "The checks", judged.rest, isOpen);
    section.replaceChildren(box);
  };

  let spokenAt = -Infinity;
  let spoken = null;
  const speak = () => {
    const word = state.status.word + state.is_over;
    const at = performance.now();
    if (word === spoken && at - spokenAt < 15000) return;
    [spoken, spokenAt] = [word, at];
    say($("aloud"), state.aloud);
  };

  const showHead = () => {
    document.title = plain(`${state.status.word ? `${state.status.word} · ` : ""}${state.title}`);
    say($("title"), state.title);
    say($("status"), state.status.word);
    $("status").className = `status ${state.status.tone}`;
    say($("lead"), state.lead);
    $("lead").hidden = !state.lead;
    $("progress").hidden = !state.progress;
    if (state.progress) {
      $("progress").firstElementChild.value = state.progress.share;
      say($("progress").lastElementChild, state.progress.text);
    }
    showFacts();
    showJudged();
    place($("foot"), state.foot.map((words, at) => {
      const line = $("foot").children[at] ?? element("p");
      say(line, words);
      return line;
    }));
    speak();
  };

  const show = () => {
    if (paused || !state) return;
    showHead();
    place($("sections"), state.sections.map(sectionNode));
    const ids = new Set(state.sections.flatMap((section) => section.pieces.map((piece) => piece.id)));
    for (const [id, one] of made) {
      if (ids.has(id)) continue;
      one.forget?.();
      made.delete(id);
    }
    for (const [id, node] of sectionNodes) if (!node.isConnected) sectionNodes.delete(id);
    measure();
    made.forEach((one) => one.touch?.());
    document.body.dataset.over = state.is_over;
  };

  // ---- Messages from the server ----

  const apply = (step) => {
    if (step.head) state = { ...step.head, sections: state.sections };
    const pieces = new Map();
    for (const section of state.sections) section.pieces.forEach((piece, at) => pieces.set(piece.id, [section, at]));
    const change = (id, make) => {
      const [section, at] = pieces.get(id);
      section.pieces[at] = make(section.pieces[at]);
    };
    for (const piece of step.pieces ?? []) change(piece.id, () => piece);
    for (const { id, from, xs, ys } of step.grown ?? [])
      change(id, (piece) => ({
        ...piece,
        xs: [...piece.xs.slice(0, from), ...xs],
        ys: piece.ys.map((values, at) => [...values.slice(0, from), ...ys[at]]),
      }));
    for (const { id, from, columns } of step.columns ?? [])
      change(id, (piece) => ({ ...piece, columns: [...piece.columns.slice(0, from), ...columns] }));
  };

  const lose = (words) => {
    say($("lost"), words);
    $("lost").hidden = !words;
  };

  const connect = () => {
    const events = new EventSource(`events${last ? `?after=${encodeURIComponent(last)}` : ""}`);
    const take = (event, change) => {
      last = event.lastEventId;
      lose("");
      change(JSON.parse(event.data));
      show();
    };
    events.addEventListener("open", () => lose(""));
    events.addEventListener("snapshot", (event) => take(event, (whole) => (state = whole)));
    events.addEventListener("step", (event) => take(event, apply));
    events.addEventListener("end", () => {
      if (!state?.is_over) return;
      events.close();
      lose("");
    });
    events.addEventListener("error", () => {
      lose("The connection is lost; trying again. The page shows the last received state.");
      // Some refusals close the event stream permanently; the page then connects again.
      if (events.readyState === EventSource.CLOSED) setTimeout(connect, 2000);
    });
  };

  $("pause").addEventListener("click", () => {
    paused = !paused;
    $("pause").setAttribute("aria-pressed", paused);
    say($("pause"), paused ? "Go on" : "Pause");
    if (paused) return;
    // Messages may have been missed: the server sends the complete state.
    for (const section of state?.sections ?? []) section.pieces.forEach((piece) => made.get(piece.id)?.show(piece));
    show();
  });
  $("window").addEventListener("change", () => setZoom(null));
  $("unzoom").addEventListener("click", () => {
    setZoom(null);
    $("window").focus();
  });
  document.addEventListener("visibilitychange", () => !document.hidden && made.forEach((one) => one.touch?.()));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => made.forEach((one) => one.plot?.redraw()));
  connect();
})();
