"use strict";
// Formats figures as the program does; shared by the report's charts and the live page.
const figures = (() => {
  const root = document.documentElement;
  const color = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const FONT = '12px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif';

  // Formats a figure with three significant digits and a unit.
  const grouped = (number) => String(number).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
  const digits = (v) => (v < 9.995 ? v.toFixed(2) : v < 99.95 ? v.toFixed(1) : v.toFixed(0));
  const scaled = (v, least, units) => {
    for (const [factor, unit] of units) if (Math.abs(v) >= factor * 0.9995) return `${digits(v / factor)} ${unit}`;
    return `${v.toFixed(0)} ${least}`;
  };
  const level = (v) => (v < 9.995 ? v.toFixed(2) : v < 999.95 ? v.toFixed(1) : grouped(Math.round(v)));
  const TIMES = [[1e9, "s"], [1e6, "ms"], [1e3, "us"]];
  const SIZES = [[1e9, "GB"], [1e6, "MB"], [1e3, "KB"]];
  const text = (v, quantity) => {
    if (v == null) return "–";
    switch (quantity) {
      case "ns": return scaled(v, "ns", TIMES);
      case "bytes": return scaled(v, "B", SIZES);
      case "rate": return `${level(v)}/s`;
      case "s": return `${+v.toFixed(1)} s`;
      case "share": return `${digits(100 * v)} %`;
      default: return Number.isInteger(v) ? grouped(v) : level(v);
    }
  };

  // Labels of an axis: one unit, and the fewest decimals that distinguish them.
  const labels = (ticks, quantity, log) => {
    const most = Math.max(...ticks.map((t) => Math.abs(t ?? 0)));
    const units = quantity === "ns" ? TIMES : quantity === "bytes" ? SIZES : [];
    const least = quantity === "ns" ? " ns" : quantity === "bytes" ? " B" : "";
    const own = (t) => units.find(([factor]) => t >= factor * 0.9995);
    const all = own(most);
    return ticks.map((t) => {
      if (t == null) return "";
      if (t === 0) return "0";
      const unit = log ? own(t) : all;
      const value = quantity === "share" ? t * 100 : t / (unit ? unit[0] : 1);
      const number = String(+value.toPrecision(6)).split(".");
      return [grouped(number[0]), ...number.slice(1)].join(".") + (quantity === "share" ? " %" : unit ? ` ${unit[1]}` : least);
    });
  };

  // Ticks of a logarithmic axis: 1, 2 and 5 times each power of ten, or only the powers if there are many.
  const powers = (u, axis, low, high) => {
    const factors = Math.log10(high / low) > 2.2 ? [1] : [1, 2, 5];
    const marks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
      for (const factor of factors) marks.push(factor * 10 ** power);
    return marks.filter((mark) => mark >= low * 0.999 && mark <= high * 1.001);
  };

  return { color, FONT, text, labels, powers };
})();
