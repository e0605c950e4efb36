"use strict";
// Functions that build the pages. Text is inserted as text, never as markup.
const dom = (() => {
  const $ = (id) => document.getElementById(id);
  // Invisible characters, and those that change the writing direction, are shown as their code.
  const plain = (words) =>
    words.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (c) => `\\u{${c.charCodeAt(0).toString(16)}}`);
  const element = (name, className, content) => {
    const node = document.createElement(name);
    if (className) node.className = className;
    if (content != null) node.textContent = plain(content);
    return node;
  };
  const say = (node, content) => {
    const words = plain(content);
    if (node.textContent !== words) node.textContent = words;
  };
  // Makes `nodes`, in this order, the only children of a parent. Existing nodes stay untouched, so that focus and scroll position stay.
  const place = (parent, nodes) => {
    nodes.forEach((node, at) => {
      if (parent.children[at] !== node) parent.insertBefore(node, parent.children[at] ?? null);
    });
    while (parent.children.length > nodes.length) parent.lastElementChild.remove();
  };

  const fillTable = (holder, { head, rows, left = [], links = [], root = "" }, className) => {
    const table = element("table", className);
    const side = (at) => (at === 0 || left.includes(at) ? "words" : "");
    if (head.some((name) => name)) {
      const line = table.createTHead().insertRow();
      head.forEach((name, at) => {
        const cell = element("th", side(at), name);
        cell.scope = "col";
        line.append(cell);
      });
    }
    const body = table.createTBody();
    rows.forEach((row, number) => {
      const line = body.insertRow();
      row.forEach((words, at) => {
        const cell = element(at === 0 ? "th" : "td", side(at));
        if (at === 0) cell.scope = "row";
        if (at === 0 && links[number]) {
          const link = element("a", "", words);
          link.href = root + links[number].split("/").map(encodeURIComponent).join("/");
          cell.append(link);
        } else say(cell, words);
        line.append(cell);
      });
    });
    const scroll = element("div", "scroll");
    scroll.append(table);
    // Scrollable elements are reachable by keyboard.
    scroll.tabIndex = 0;
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", head.filter(Boolean).join(", ") || "table");
    holder.replaceChildren(scroll);
  };

  return { $, plain, element, say, place, fillTable };
})();
