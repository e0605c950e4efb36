"use strict";
// Replaces the plots over time by charts with zoom and values under the cursor. The page is complete without this script.
(() => {
  const plots = JSON.parse(document.getElementById("plots").textContent);
  const { color, FONT, text, labels, powers } = figures;

  const shade = (plot) => (u) => {
    const { ctx, bbox } = u;
    const ratio = devicePixelRatio;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.font = FONT.replace("12px", `${12 * ratio}px`);
    ctx.textAlign = "center";
    for (const [from, to, label] of plot.bands) {
      const left = Math.max(u.valToPos(from, "x", true), bbox.left);
      const right = Math.min(u.valToPos(to, "x", true), bbox.left + bbox.width);
      if (right <= left) continue;
      ctx.globalAlpha = 0.09;
      ctx.fillStyle = color("--soft");
      ctx.fillRect(left, bbox.top, right - left, bbox.height);
      ctx.globalAlpha = 1;
      if (ctx.measureText(label).width + 16 * ratio < right - left) ctx.fillText(label, (left + right) / 2, bbox.top + bbox.height / 2);
    }
    ctx.restore();
  };

  const rules = (plot) => (u) => {
    const { ctx, bbox } = u;
    const ratio = devicePixelRatio;
    ctx.save();
    ctx.font = FONT.replace("12px", `${12 * ratio}px`);
    ctx.textAlign = "right";
    ctx.fillStyle = ctx.strokeStyle = color("--soft");
    ctx.lineWidth = ratio;
    ctx.setLineDash([2 * ratio, 4 * ratio]);
    let above = null;
    for (const [at, label] of plot.rules) {
      const y = u.valToPos(at, "y", true);
      if (!(y >= bbox.top - 1 && y <= bbox.top + bbox.height)) continue;
      ctx.beginPath();
      ctx.moveTo(bbox.left, y);
      ctx.lineTo(bbox.left + bbox.width, y);
      ctx.stroke();
      const below = above !== null && Math.abs(above - y) < 16 * ratio;
      above = y;
      ctx.lineJoin = "round";
      ctx.setLineDash([]);
      ctx.lineWidth = 3 * ratio;
      ctx.strokeStyle = color("--paper");
      const [x, base] = [bbox.left + bbox.width - 4 * ratio, y + (below ? 14 : -5) * ratio];
      ctx.strokeText(label, x, base);
      ctx.fillText(label, x, base);
      ctx.strokeStyle = color("--soft");
      ctx.lineWidth = ratio;
      ctx.setLineDash([2 * ratio, 4 * ratio]);
    }
    ctx.restore();
  };

  const charts = [];
  for (const figure of document.querySelectorAll("figure[data-plot]")) {
    const plot = plots[+figure.dataset.plot];
    const series = plot.series.map((one) => ({
      label: one.name,
      stroke: () => color(`--c${one.color}`),
      fill: one.fill ? () => `${color(`--c${one.color}`)}38` : undefined,
      width: one.dashed ? 1.5 : 1.75,
      dash: one.dashed ? [6, 5] : undefined,
      points: { show: false },
      paths: one.step ? uPlot.paths.stepped({ align: 1 }) : undefined,
      value: (u, v) => text(v, plot.y.quantity),
    }));
    const data = plot.series.length
      ? uPlot.join(plot.series.map((one) => [one.x, one.y]), plot.series.map(() => [0, 1]))
      : [[]];
    const axis = {
      stroke: () => color("--soft"),
      font: FONT,
      labelFont: FONT,
      labelSize: 18,
      grid: { stroke: () => color("--line"), width: 1 },
      ticks: { stroke: () => color("--line"), width: 1, size: 4 },
    };
    const highest = Math.max(...plot.rules.map((rule) => rule[0]), -Infinity);
    const height = () => (figure.clientWidth < 480 ? 230 : 270);
    const chart = new uPlot(
      {
        width: figure.clientWidth,
        height: height(),
        padding: [12, 14, 0, 0],
        cursor: { y: false, sync: { key: plot.x.quantity }, drag: { x: true, y: false }, points: { size: 7 } },
        legend: {
          // Colours as CSS, so that they follow the reader's choice of dark or light.
          markers: {
            width: 0,
            fill: (u, at) => {
              const { color: place, dashed } = plot.series[at - 1];
              return dashed ? `repeating-linear-gradient(90deg, var(--c${place}) 0 4px, transparent 4px 7px)` : `var(--c${place})`;
            },
          },
        },
        scales: {
          x: { time: false },
          y: plot.y.log
            ? { distr: 3 }
            : {
                range: (u, low, high) => {
                  high = Math.max(high ?? 0, highest, plot.y.to ?? -Infinity);
                  low = Math.min(low ?? 0, plot.y.from ?? Infinity);
                  return plot.y.from == null ? uPlot.rangeNum(low, high, 0.1, false) : [low, high > low ? high + (high - low) * 0.08 : low + 1];
                },
              },
        },
        axes: [
          { ...axis, size: 26, space: 70, label: plot.x.label, grid: { show: false }, values: (u, ticks) => labels(ticks, plot.x.quantity, false) },
          {
            ...axis,
            size: (u, values) => 16 + 7 * Math.max(3, ...(values ?? []).map((value) => value.length)),
            values: (u, ticks) => labels(ticks, plot.y.quantity, plot.y.log),
            ...(plot.y.log ? { splits: powers, filter: (u, ticks) => ticks } : {}),
          },
        ],
        series: [{ label: "time", value: (u, v) => text(v, plot.x.quantity) }, ...series],
        hooks: { drawClear: [shade(plot)], draw: [rules(plot)] },
      },
      data,
      (u, init) => {
        const label = document.createElement("div");
        label.className = "label";
        label.textContent = plot.y.label;
        figure.append(...(plot.y.label ? [label] : []), u.root);
        u.root.prepend(u.root.querySelector(".u-legend"));
        const [title, about] = ["title", "desc"].map((name) => figure.querySelector(`svg > ${name}`)?.textContent ?? "");
        u.ctx.canvas.setAttribute("role", "img");
        u.ctx.canvas.setAttribute("aria-label", `${title}. ${about}`);
        u.over.title = "Drag to zoom, double-click to reset";
        figure.classList.add("drawn");
        init();
      },
    );
    charts.push(chart);
    new ResizeObserver(() => {
      const width = figure.clientWidth;
      if (width > 0 && width !== chart.width) chart.setSize({ width, height: height() });
    }).observe(figure);
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.forEach((chart) => chart.redraw()));
})();
