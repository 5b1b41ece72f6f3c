"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const table = document.getElementById("table"), body = table.tBodies[0];
  const filters = document.getElementById("filters"), shown = document.getElementById("shown");
  const rows = [...body.rows], details = new Map();
  let order = rows.map((_, i) => i);
  data.gap = data.lower.map((lower, i) => data.upper[i] - lower);

  // Elements hold text, never markup; SVG's namespace is taken from a picture that is there.
  const space = document.querySelector("svg").namespaceURI;
  const fill = (made, attributes, children) => {
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  };
  const element = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
  const shape = (name, attributes = {}, ...children) => fill(document.createElementNS(space, name), attributes, children);

  // Sorting: missing values last, equal ones in the order of the file.
  const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  const sort = (key, down) => {
    const values = data[key];
    order.sort((i, j) => {
      const a = values[i], b = values[j];
      if (a === null || b === null) return (a === null) - (b === null) || i - j;
      return (down ? compare(b, a) : compare(a, b)) || i - j;
    });
    const sorted = document.createDocumentFragment();
    for (const i of order) sorted.append(rows[i], ...(details.has(i) ? [details.get(i)] : []));
    body.append(sorted);
  };
  for (const button of table.tHead.querySelectorAll("button")) {
    button.addEventListener("click", () => {
      const heading = button.closest("th"), down = heading.getAttribute("aria-sort") === "ascending";
      for (const other of table.tHead.querySelectorAll("th")) other.setAttribute("aria-sort", "none");
      heading.setAttribute("aria-sort", down ? "descending" : "ascending");
      sort(button.dataset.key, down);
    });
  }

  const filter = () => {
    const asked = Object.fromEntries(new FormData(filters));
    const least = Number(asked.lower || 0);
    let count = 0;
    rows.forEach((row, i) => {
      const fits = String(data.index[i]).includes(asked.index.trim())
        && (!asked.status || data.status[i] === asked.status)
        && (!asked.eps || data.eps[i] === Number(asked.eps))
        && (!asked.label || String(data.label[i]) === asked.label)
        && (!asked.verdict || data.verdict[i] === asked.verdict)
        && 100 * data.lower[i] >= least;
      row.hidden = !fits;
      if (details.has(i)) details.get(i).hidden = !fits;
      count += fits;
    });
    shown.textContent = `${count} of ${rows.length}`;
    document.getElementById("nothing").hidden = count > 0;
  };
  filters.addEventListener("input", filter);
  filters.addEventListener("reset", () => setTimeout(filter));
  filters.addEventListener("submit", event => event.preventDefault());

  // The plane of weights: runs of letters down its columns, one colour a letter.
  const section = ([runs, points], caption) => {
    const side = data.side, middle = side / 2, unit = (side - 1) / (2 * data.reach);
    const paths = ["", "", "", "", "", ""];
    let proved = "", at = 0;
    for (const [, letter, length] of runs.matchAll(/([a-l])(\d+)/g)) {
      const code = letter.charCodeAt(0) - 97;
      for (let left = Number(length); left > 0;) {
        const column = Math.floor(at / side), low = at % side, take = Math.min(left, side - low);
        const cell = `M${column} ${side - low - take}h1v${take}h-1z`;
        paths[code % 6] += cell;
        if (code > 5) proved += cell;
        at += take;
        left -= take;
      }
    }
    const picture = shape("svg", {viewBox: `-4 -1 ${side + 5} ${side + 6}`, role: "img", "aria-label": caption});
    paths.forEach((d, code) => picture.append(shape("path", {class: `k${code}`, d, "shape-rendering": "crispEdges"})));
    picture.append(shape("path", {class: "proved", d: proved}));
    for (const radius of [1, 2, 3]) {
      picture.append(shape("circle", {class: "ring", cx: middle, cy: middle, r: radius * unit}),
        shape("text", {class: "inner", x: middle + .4, y: middle - radius * unit - .3}, String(radius)));
    }
    picture.append(shape("circle", {class: "dot", cx: middle, cy: middle, r: .45}));
    const label = (x, y, anchor, text, more = {}) =>
      picture.append(shape("text", {x, y, "text-anchor": anchor, ...more}, text));
    label(.5, side + 2.2, "middle", `−${data.reach}`);
    label(side - .5, side + 2.2, "middle", `+${data.reach}`);
    label(middle, side + 2.2, "middle", "most dangerous direction →");
    label(middle, side + 4.6, "middle", `in ${data.unit}`);
    label(-1, middle, "middle", "random direction", {transform: `rotate(-90 -1 ${middle})`});
    const legend = element("div", {class: "legend"});
    const entry = (name, text) => legend.append(element("span", {}, element("i", {class: `swatch ${name}`}), text));
    entry("right", points > 1 ? "right on the input and on the counterexample" : "right on the clean input");
    const bands = ["below a third", "below two thirds", "below all", "at least all"];
    const seen = bands.map((text, band) => [`right${band}`, text, band]).filter(([, , band]) => paths[2 + band]);
    if (seen.length > 1) {
      legend.append(element("span", {class: "bands"}, "smallest margin, of that at the centre:",
        ...seen.map(([name, text]) => element("span", {}, element("i", {class: `swatch ${name}`}), text))));
    }
    if (points > 1) entry("half", "right on the input, wrong on the counterexample");
    entry("wrong", "wrong on the clean input");
    if (proved) entry("proved", "inside a proved box");
    return element("figure", {class: "section"}, picture, legend, element("figcaption", {}, caption));
  };

  const picture = (source, text) =>
    element("figure", {}, element("img", {src: source, alt: text}), element("figcaption", {}, text));
  const pictures = (i, figure) => {
    const clean = rows[i].querySelector("img");
    if (!clean) return [];
    const all = [picture(clean.src, "clean input")];
    if (figure.point) {
      const [point, change, largest] = figure.point;
      all.push(picture(point, "counterexample"), picture(change, `difference, scaled: black −${largest}, white +${largest}`));
    }
    return [element("div", {class: "pictures"}, ...all)];
  };
  const fact = (name, value) =>
    element("div", value.length > 30 ? {class: "long"} : {}, element("dt", {}, name), element("dd", {}, value || "–"));
  const facts = pairs =>
    element("dl", {class: "facts"}, ...pairs.map(([name, value]) => fact(data.texts[name], data.texts[value])));

  const detail = i => {
    const left = data.figures[i] === "left out", figure = left ? {} : data.figures[i] || {};
    const caption = data.texts[data.captions[i]];
    const words = data.words[i].map(sentence => element("p", {}, data.texts[sentence]));
    const plane = figure.section ? section(figure.section, caption)
      : element("p", {class: "note"}, left ? "Pictures of this input are left out to keep the file small." : caption);
    const tables = (figure.tables || []).map(([caption, columns, rows]) => element("div", {class: "coordinates"},
      element("table", {class: "plain numbers"}, element("caption", {}, caption),
        element("thead", {}, element("tr", {}, ...columns.map(name => element("th", {scope: "col"}, name)))),
        element("tbody", {}, ...rows.map(([name, ...cells]) => element("tr", {},
          element("th", {scope: "row"}, name), ...cells.map(cell => element("td", {class: "n"}, cell))))))));
    const shown = element("div", {}, ...pictures(i, figure), element("div", {class: "words"}, ...words), ...tables);
    const eps = rows[i].querySelector(".eps");  // there only if there are several
    const title = eps ? [element("h3", {}, `Input ${data.index[i]} at ε = ${eps.textContent}`)] : [];
    const content = [...title, element("div", {class: "body"}, shown, plane), facts(data.facts[i])];
    return element("tr", {class: "detail", id: `detail-${i}`}, element("td", {colspan: rows[i].cells.length}, ...content));
  };
  const toggle = i => {
    const button = rows[i].querySelector("button"), open = button.getAttribute("aria-expanded") !== "true";
    button.setAttribute("aria-expanded", String(open));
    rows[i].classList.toggle("open", open);
    if (open) {
      details.set(i, detail(i));
      rows[i].after(details.get(i));
      button.setAttribute("aria-controls", `detail-${i}`);
    } else {
      details.get(i).remove();
      details.delete(i);
      button.removeAttribute("aria-controls");
    }
  };
  // On paper every entry is open, as long as there are not too many to read.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = rows.length > data.printed ? [] : order.filter(i => !details.has(i) && !rows[i].hidden);
    opened.forEach(toggle);
  });
  addEventListener("afterprint", () => { opened.forEach(toggle); opened = []; });
  rows.forEach((row, i) => row.addEventListener("click", event => {
    if (event.target.closest("button") || getSelection().isCollapsed) toggle(i);  // a selection is not a click
  }));
})();
