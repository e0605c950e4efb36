// A chart over the wall clock, with a legend and a table of the same values.
fleet.chart = (() => {
  const { element, say, fillTable } = dom;
  const { color, FONT, text, labels, powers } = figures;
  const stepped = uPlot.paths.stepped({ align: 1 });
  const linear = uPlot.paths.linear();
  const paths = (u, at, from, to) => (to - from > 200 ? linear : stepped)(u, at, from, to);

  const axis = () => ({
    stroke: () => color("--soft"),
    font: FONT,
    grid: { stroke: () => color("--line"), width: 1 },
    ticks: { stroke: () => color("--line"), width: 1, size: 4 },
  });
  const range = (piece) => (u, low, high) => {
    if (low == null || high == null) return piece.log ? [1e6, 1e7] : [0, 1];
    if (piece.log) return [Math.max(low, 1) / 1.3, high * 1.3];
    if (piece.top != null) return [Math.max(0, Math.min(low, piece.top - 0.001) - (piece.top - low) * 0.08), piece.top];
    return [0, high > 0 ? high * 1.08 : 1];
  };
  const moment = (seconds) => fleet.moment(seconds * 1e9).slice(0, 16);
  const plotted = (piece) => {
    if (!piece.xs.length) return [[], ...piece.series.map(() => [])];
    // The last span is drawn until its end.
    return [[...piece.xs, piece.until], ...piece.series.map((line) => [...line.ys, line.ys[line.ys.length - 1]])];
  };
  // Ticks of the time axis, in UTC: the date at the begin of a day, otherwise the time of day.
  const marks = (ticks) => {
    const step = ticks.length > 1 ? ticks[1] - ticks[0] : 0;
    return ticks.map((tick) => {
      const words = moment(tick);
      if (step >= 27 * 86400) return words.slice(0, 7);
      return tick % 86400 ? words.slice(11) : words.slice(5, 10);
    });
  };
  // Without a cursor, the legend shows the latest values.
  const latest = (u) => {
    if (u.cursor.left >= 0 || !u.data[0].length) return;
    let at = u.data[0].length - 2;
    while (at > 0 && u.data.slice(1).every((ys) => ys[at] == null)) at--;
    u.setLegend({ idx: Math.max(at, 0) }, false);
  };
  const height = (figure) => (figure.clientWidth < 480 ? 190 : 230);

  const draw = (piece, figure, holder) =>
    new uPlot(
      {
        width: Math.max(figure.clientWidth, 200),
        height: height(figure),
        padding: [8, 18, 0, 0],
        tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
        cursor: { y: false, sync: { key: "fleet", setSeries: false }, points: { size: 6 } },
        hooks: { setCursor: [latest] },
        legend: { markers: { width: 0, fill: (u, at) => `var(--c${piece.series[at - 1].color})` } },
        scales: { x: { time: true }, y: piece.log ? { distr: 3, range: range(piece) } : { range: range(piece) } },
        axes: [
          { ...axis(), size: 24, space: 70, grid: { show: false }, values: (u, ticks) => marks(ticks) },
          {
            ...axis(),
            size: (u, values) => 14 + 7 * Math.max(3, ...(values ?? []).map((value) => value.length)),
            values: (u, ticks) => labels(ticks, piece.quantity, piece.log),
            ...(piece.log ? { splits: powers, filter: (u, ticks) => ticks } : {}),
          },
        ],
        series: [
          { label: "UTC", value: (u, v) => (v == null ? "–" : moment(v)) },
          ...piece.series.map((line) => ({
            label: line.name,
            stroke: () => color(`--c${line.color}`),
            width: 1.75,
            points: { size: 4 },
            paths,
            value: (u, v) => text(v, piece.quantity),
          })),
        ],
      },
      plotted(piece),
      holder,
    );

  const charts = new Set();
  const sized = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const one = [...charts].find((chart) => chart.node === target);
      if (one?.plot && target.clientWidth > 0 && target.clientWidth !== one.plot.width) one.plot.setSize({ width: target.clientWidth, height: height(target) });
    }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.forEach((one) => one.plot?.redraw()));

  // `piece`: title, about, quantity, log, top, xs (s since 1970), until, series [{name, color, ys}].
  return (title, about) => {
    const node = element("figure", "half");
    const caption = element("figcaption");
    const said = element("span", "", about);
    caption.append(element("b", "", title), said);
    const holder = element("div");
    holder.setAttribute("role", "img");
    const details = element("details");
    const rows = element("div");
    details.append(element("summary", "", "As a table"), rows);
    node.append(caption, holder, details);
    const one = { node, plot: null, signature: "" };
    let piece = null;
    const fill = () => {
      if (!details.open || !piece) return;
      fillTable(rows, {
        head: ["UTC", ...piece.series.map((line) => line.name)],
        rows: piece.xs.map((x, at) => [moment(x), ...piece.series.map((line) => text(line.ys[at], piece.quantity))]),
      });
    };
    details.addEventListener("toggle", fill);
    one.show = (next) => {
      piece = next;
      if (next.about) say(said, next.about);
      const signature = JSON.stringify([next.series.map(({ name, color }) => [name, color]), next.quantity, next.log, next.top]);
      if (one.plot && one.signature !== signature) {
        one.plot.destroy();
        one.plot = null;
      }
      if (one.plot) one.plot.setData(plotted(next));
      else {
        one.signature = signature;
        one.plot = draw(next, node, holder);
        const legend = one.plot.root.querySelector(".u-legend");
        if (legend) one.plot.root.prepend(legend);
        one.plot.over.title = "Drag to zoom, double-click to reset";
      }
      latest(one.plot);
      const newest = next.series.map((line) => {
        const known = line.ys.filter((y) => y != null);
        return `${line.name} ${known.length ? text(known[known.length - 1], next.quantity) : "nothing"}`;
      });
      holder.setAttribute("aria-label", `${title}. Latest: ${newest.join(", ")}.`);
      fill();
    };
    charts.add(one);
    sized.observe(node);
    return one;
  };
})();
