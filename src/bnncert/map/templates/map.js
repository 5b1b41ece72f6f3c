"use strict";
// Heat maps of a map's cells: two dimensions across the picture, the others held fast or at their worst.
const data = JSON.parse(document.getElementById("data").textContent);
const canvas = document.getElementById("heat"), context = canvas.getContext("2d");
const told = document.getElementById("told"), fixed = document.getElementById("fixed");
const [pickX, pickY, pickColour] = ["x", "y", "colour"].map((id) => document.getElementById(id));
const sides = data.sides, n = sides.length;
const STATUS = 2 * n, LABEL = STATUS + 1, LOWER = STATUS + 2, UPPER = STATUS + 3, NUMBER = STATUS + 4;
const CERTIFIED = 0, FALSIFIED = 1, UNDECIDED = 2;
const BADNESS = { [CERTIFIED]: 0, [UNDECIDED]: 1, [FALSIFIED]: 2 };
// Told apart by lightness too.
const STATUS_COLOURS = ["#2f6fad", "#c9662a", "#d3dae2"];
const CLASS_COLOURS = ["#b8cfe6", "#f2b56b", "#8fcf9f", "#a8450f", "#1d6b45", "#8b6fb3", "#c2577e", "#2a9d9d", "#a3762f", "#6f6f6f"];
const labels = Object.keys(data.classes).map(Number);
const colours = [["status", "status"], ["bound", "P_safe is at least"]];
if (labels.length) colours.splice(1, 0, ["class", "class, where it is certified"]);

const option = (value, words) => Object.assign(document.createElement("option"), { value, textContent: words });
const said = (side) => side.name + (side.unit ? ` [${side.unit}]` : "");
const short = (value) => Number(value.toPrecision(6)).toString();

for (const pick of [pickX, pickY]) sides.forEach((side, i) => pick.append(option(i, said(side))));
pickY.value = n > 1 ? 1 : 0;
for (const [value, words] of colours) pickColour.append(option(value, words));

// Of every dimension: the value it is held at, in the middle at first, and whether its worst is shown instead.
const held = sides.map((side) => ({ value: (side.ends[0] + side.ends.at(-1)) / 2, worst: false }));
let drawn = [];  // by pixel, the cell shown there

function others() {
  return sides.map((_, i) => i).filter((i) => i !== Number(pickX.value) && i !== Number(pickY.value));
}

function sliders() {
  fixed.replaceChildren();
  for (const i of others()) {
    const side = sides[i], first = side.ends[0], last = side.ends.at(-1);
    const label = document.createElement("label"), words = document.createElement("span");
    const slider = Object.assign(document.createElement("input"), { type: "range", min: 0, max: 256, step: 1 });
    slider.value = Math.round(256 * (held[i].value - first) / (last - first));
    const tell = () => { words.textContent = held[i].worst ? `${said(side)}: worst` : `${said(side)} at ${short(held[i].value)}`; };
    slider.addEventListener("input", () => { held[i].value = first + (last - first) * slider.value / 256; tell(); draw(); });
    label.append(words, slider);
    const worst = document.createElement("label");
    worst.className = "worst";
    const box = Object.assign(document.createElement("input"), { type: "checkbox", checked: held[i].worst });
    box.addEventListener("change", () => { held[i].worst = box.checked; slider.disabled = box.checked; tell(); draw(); });
    slider.disabled = held[i].worst;
    worst.append(box, `worst over all of it`);
    fixed.append(label, worst);
    tell();
  }
}

function shown(cell) {
  return others().every((i) => {
    if (held[i].worst) return true;
    const ends = sides[i].ends, low = ends[cell[2 * i]], high = ends[cell[2 * i + 1]], at = held[i].value;
    return low <= at && (at < high || (at === high && cell[2 * i + 1] === ends.length - 1));
  });
}

function worse(cell, other) {
  if (!other) return true;
  const [a, b] = [BADNESS[cell[STATUS]], BADNESS[other[STATUS]]];
  return a !== b ? a > b : cell[LOWER] < other[LOWER];
}

function mixed(share) {  // from open to safe
  const [from, to] = [[230, 220, 205], [31, 90, 153]];
  return `rgb(${from.map((value, k) => Math.round(value + (to[k] - value) * share)).join(",")})`;
}

function colour(cell) {
  if (pickColour.value === "bound") return mixed(cell[LOWER]);
  if (pickColour.value === "class" && cell[STATUS] === CERTIFIED) return CLASS_COLOURS[cell[LABEL] % CLASS_COLOURS.length];
  if (pickColour.value === "class") return cell[STATUS] === FALSIFIED ? "#1c2024" : "#8d959d";
  return STATUS_COLOURS[cell[STATUS]];
}

function draw() {
  const [x, y] = [Number(pickX.value), Number(pickY.value)], size = canvas.width;
  const place = (i) => {
    const ends = sides[i].ends, first = ends[0], whole = ends.at(-1) - first;
    return ends.map((end) => Math.round(size * (end - first) / whole));
  };
  const [across, up] = [place(x), place(y)];
  drawn = new Array(size * size).fill(null);
  for (const cell of data.cells.filter(shown)) {
    for (let j = up[cell[2 * y]]; j < up[cell[2 * y + 1]]; j++)
      for (let i = across[cell[2 * x]]; i < across[cell[2 * x + 1]]; i++)
        if (worse(cell, drawn[j * size + i])) drawn[j * size + i] = cell;
  }
  for (let j = 0; j < size; j++) {
    for (let i = 0, start = 0; i <= size; i++) {
      if (i < size && drawn[j * size + i] === drawn[j * size + start]) continue;
      const cell = drawn[j * size + start];
      context.fillStyle = cell ? colour(cell) : "#ffffff";
      context.fillRect(start, size - 1 - j, i - start, 1);
      start = i;
    }
  }
  axes(x, y);
  keys();
}

function axes(x, y) {
  const texts = (i) => [short(sides[i].ends[0]), said(sides[i]), short(sides[i].ends.at(-1))];
  const spans = (words) => words.map((text) => Object.assign(document.createElement("span"), { textContent: text }));
  document.getElementById("across").replaceChildren(...spans(texts(x)));
  document.getElementById("up").replaceChildren(...spans(texts(y).reverse()));
}

function keys() {
  const entries = {
    status: data.statuses.map((words, k) => [words, STATUS_COLOURS[k]]),
    class: [...labels.map((k) => [data.classes[k], CLASS_COLOURS[k % CLASS_COLOURS.length]]), ["falsified", "#1c2024"], ["undecided", "#8d959d"]],
    bound: [0, 0.25, 0.5, 0.75, 1].map((share) => [`${100 * share} %`, mixed(share)]),
  }[pickColour.value];
  document.getElementById("keys").replaceChildren(...entries.map(([words, shade]) => {
    const key = document.createElement("span"), swatch = document.createElement("i");
    swatch.className = "swatch";
    swatch.style.background = shade;
    key.append(swatch, words);
    return key;
  }));
}

function tell(event) {
  const box = canvas.getBoundingClientRect(), size = canvas.width;
  const i = Math.floor(size * (event.clientX - box.left) / box.width);
  const j = size - 1 - Math.floor(size * (event.clientY - box.top) / box.height);
  const cell = drawn[j * size + i];
  if (!cell || i < 0 || i >= size) return;
  const ends = sides.map((side, k) => `${side.name}: ${short(side.ends[cell[2 * k]])} to ${short(side.ends[cell[2 * k + 1]])} ${side.unit}`);
  const name = cell[LABEL] < 0 ? "" : `, class ${data.classes[cell[LABEL]]}`;
  told.textContent = [`cell ${cell[NUMBER]}: ${data.statuses[cell[STATUS]]}${name}`, ...ends, `P_safe from ${short(cell[LOWER])} to ${short(cell[UPPER])}`].join("\n");
}

for (const pick of [pickX, pickY]) {
  pick.addEventListener("change", () => {
    if (pickX.value === pickY.value && n > 1) {
      const other = pick === pickX ? pickY : pickX;
      other.value = (Number(pick.value) + 1) % n;
    }
    sliders();
    draw();
  });
}
pickColour.addEventListener("change", draw);
canvas.addEventListener("mousemove", tell);
canvas.addEventListener("click", tell);
sliders();
draw();
