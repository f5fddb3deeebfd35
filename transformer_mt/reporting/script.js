"use strict";
(function () {
  const numbers = JSON.parse(document.getElementById("numbers").textContent);
  const svgOf = "http://www.w3.org/2000/svg";
  const byId = (id) => document.getElementById(id);

  function made(parent, name, attributes, text) {
    const svg = parent.namespaceURI === svgOf || name === "svg";
    const element = svg ? document.createElementNS(svgOf, name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    parent.append(element);
    return element;
  }

  const format = (value) =>
    value === null ? "not finite"
      : value !== 0 && Math.abs(value) < 0.001 ? value.toPrecision(3)
        : value.toLocaleString("en", { maximumSignificantDigits: Math.abs(value) < 1000 ? 4 : 12 });

  // ---- Curves: the values at the point of the picture that is pointed at, or chosen by keys.

  function nearest(steps, wanted) {
    let low = 0;
    let high = steps.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (steps[middle] < wanted) low = middle + 1;
      else high = middle;
    }
    return low > 0 && wanted - steps[low - 1] <= steps[low] - wanted ? low - 1 : low;
  }

  for (const picture of document.querySelectorAll("svg[data-chart]")) {
    const chart = numbers.charts[picture.dataset.chart];
    const output = picture.parentElement.querySelector("output");
    const cursor = picture.querySelector(".cursor");
    const steps = [...new Set(chart.series.flatMap((line) => line.steps))].sort((a, b) => a - b);
    let at = steps.length - 1;
    const show = (index) => {
      at = Math.max(0, Math.min(steps.length - 1, index));
      const step = steps[at];
      const x = chart.left + ((chart.right - chart.left) * (step - chart.low)) / (chart.high - chart.low);
      cursor.setAttribute("d", `M${x} 10V196`);
      output.replaceChildren();
      for (const line of chart.series) {
        const point = nearest(line.steps, step);
        const text = `${line.name}: ${format(line.values[point])} at ${chart.across} ${format(line.steps[point])}`;
        made(output, "div", {}, text);
      }
    };
    picture.addEventListener("pointermove", (event) => {
      const box = picture.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * 400;
      const wanted = chart.low + ((chart.high - chart.low) * (x - chart.left)) / (chart.right - chart.left);
      show(nearest(steps, wanted));
    });
    picture.addEventListener("focus", () => show(at));
    picture.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: steps.length - 1 };
      if (!(event.key in moves)) return;
      event.preventDefault();
      show(moves[event.key]);
    });
  }

  // ---- Attention.

  if (!numbers.sentences.length) return;
  byId("attention-tools").hidden = false;

  const decoded = new Map();
  function bytesOf(kind) {
    if (!decoded.has(kind)) decoded.set(kind, Uint8Array.from(atob(kind.weights), (letter) => letter.charCodeAt(0)));
    return decoded.get(kind);
  }

  // Rows of weights of a layer and a head, both from 0; head -1 is the mean of all.
  function weightsOf(kind, layer, head) {
    const bytes = bytesOf(kind);
    const [R, C] = [kind.rows.length, kind.columns.length];
    const heads = head < 0 ? [...Array(kind.heads).keys()] : [head];
    const at = (h, r, c) => bytes[((layer * kind.heads + h) * R + r) * C + c];
    return kind.rows.map((_, r) => kind.columns.map((_, c) =>
      heads.reduce((sum, h) => sum + at(h, r, c), 0) / (255 * heads.length)));
  }

  const readable = (piece) => piece.replaceAll("\u2581", "\u00b7");

  function choices(select, texts, chosen) {
    select.replaceChildren();
    texts.forEach((text, index) => made(select, "option", { value: index }, text));
    select.value = String(Math.min(chosen, texts.length - 1));
  }

  function layersAndHeads(kind, layer, head) {
    const layers = kind ? kind.layers : 0;
    const kept = layer.options.length ? Number(layer.value) : Math.max(0, layers - 2);
    choices(layer, Array.from({ length: layers }, (_, index) => String(index + 1)), kept);
    const heads = kind ? kind.heads : 0;
    const names = ["mean of all", ...Array.from({ length: heads }, (_, index) => String(index + 1))];
    choices(head, heads > 1 ? names : heads ? ["the only one"] : [], head.options.length ? Number(head.value) : 0);
  }

  const sentence = () => numbers.sentences[Number(byId("attention-sentence").value)];
  const headOf = (select) => Number(select.value) - 1;
  let cell = [0, 0];
  let word = 0;

  function drawCross() {
    const kind = sentence().cross;
    const weights = weightsOf(kind, Number(byId("cross-layer").value), headOf(byId("cross-head")));
    const rows = kind.rows.map(readable);
    const columns = kind.columns.map(readable);
    const size = 18;
    const left = 14 + 7.5 * Math.max(...rows.map((row) => row.length));
    const top = 14 + 7.5 * Math.max(...columns.map((column) => column.length));
    const [width, height] = [left + size * columns.length + 8, top + size * rows.length + 8];
    const picture = document.createElementNS(svgOf, "svg");
    for (const [key, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" }))
      picture.setAttribute(key, value);
    made(picture, "rect", { class: "frame", x: left, y: top, width: size * columns.length, height: size * rows.length });
    columns.forEach((text, c) => made(picture, "text",
      { transform: `translate(${left + size * c + 13} ${top - 5}) rotate(-90)` }, text));
    rows.forEach((text, r) => {
      made(picture, "text", { x: left - 6, y: top + size * r + 13, "text-anchor": "end" }, text);
      weights[r].forEach((weight, c) => {
        if (weight < 0.004) return;
        const place = { x: left + size * c, y: top + size * r, width: size, height: size };
        made(picture, "rect", { class: "cell", ...place, "fill-opacity": weight.toFixed(3) });
      });
    });
    const frame = made(picture, "rect", { class: "chosen", width: size, height: size });
    cell = [Math.min(cell[0], rows.length - 1), Math.min(cell[1], columns.length - 1)];
    const show = (said) => {
      frame.setAttribute("x", left + size * cell[1]);
      frame.setAttribute("y", top + size * cell[0]);
      const weight = weights[cell[0]][cell[1]].toFixed(2);
      const text = `${rows[cell[0]]} looks at ${columns[cell[1]]}: ${weight}`;
      byId("cross-read").textContent = text;
      if (said) byId("cross").setAttribute("aria-description", text);
    };
    const move = (r, c, said) => {
      cell = [Math.max(0, Math.min(rows.length - 1, r)), Math.max(0, Math.min(columns.length - 1, c))];
      show(said);
    };
    picture.addEventListener("pointermove", (event) => {
      const box = picture.getBoundingClientRect();
      const [x, y] = [event.clientX - box.left - left, event.clientY - box.top - top];
      if (x >= 0 && y >= 0) move(Math.floor(y / size), Math.floor(x / size), false);
    });
    byId("cross").onkeydown = (event) => {
      const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (!steps) return;
      event.preventDefault();
      move(cell[0] + steps[0], cell[1] + steps[1], true);
      byId("cross").scrollLeft = left + size * cell[1] - byId("cross").clientWidth / 2;
    };
    byId("cross").replaceChildren(picture);
    show(true);
  }

  function drawSelf() {
    const kind = sentence()[byId("self-side").value];
    const place = byId("self");
    place.replaceChildren();
    if (!kind) {
      byId("self-read").textContent = "This model has no self-attention.";
      return;
    }
    const weights = weightsOf(kind, Number(byId("self-layer").value), headOf(byId("self-head")));
    const words = made(place, "ol", { "aria-label": "Words; choose one" });
    const picture = made(place, "svg", { "aria-hidden": "true", preserveAspectRatio: "none" });
    const longest = Math.max(kind.rows.length, kind.columns.length);
    picture.setAttribute("viewBox", `0 0 100 ${longest * 10}`);
    const seen = made(place, "ol", { class: "seen", "aria-label": "Words that are looked at" });
    const right = kind.columns.map((text) => made(seen, "li", { dir: "auto" }, text));
    const buttons = kind.rows.map((text, index) => {
      const button = made(made(words, "li"), "button", { type: "button", dir: "auto" }, text);
      button.addEventListener("click", () => choose(index));
      button.addEventListener("keydown", (event) => {
        const next = index + ({ ArrowUp: -1, ArrowDown: 1 }[event.key] || 0);
        if (next === index || !buttons[next]) return;
        event.preventDefault();
        choose(next);
        buttons[next].focus();
      });
      return button;
    });
    function choose(index) {
      word = index;
      buttons.forEach((button, number) => button.setAttribute("aria-pressed", String(number === index)));
      picture.replaceChildren();
      const row = weights[index];
      row.forEach((weight, number) => {
        right[number].style.opacity = String(0.7 + 0.3 * Math.min(1, 3 * weight));
        if (weight < 0.004) return;
        const [from, to] = [index * 10 + 5, number * 10 + 5];
        made(picture, "path", {
          d: `M0 ${from}C50 ${from} 50 ${to} 100 ${to}`,
          "stroke-width": (9 * weight).toFixed(2),
          "stroke-opacity": (0.25 + 0.75 * weight).toFixed(2),
        });
      });
      const order = row.map((_, number) => number).sort((a, b) => row[b] - row[a] || a - b).slice(0, 5);
      const most = order.map((number) => `${kind.columns[number]} ${row[number].toFixed(2)}`).join(", ");
      byId("self-read").textContent = `${kind.rows[index]} looks at ${most}`;
    }
    choose(Math.min(word, kind.rows.length - 1));
  }

  function newSide() {
    layersAndHeads(sentence()[byId("self-side").value], byId("self-layer"), byId("self-head"));
    drawSelf();
  }

  function newSentence() {
    layersAndHeads(sentence().cross, byId("cross-layer"), byId("cross-head"));
    drawCross();
    newSide();
  }

  choices(byId("attention-sentence"), numbers.sentences.map((each) => `${each.run}: ${each.source}`), 0);
  const sides = byId("self-side");
  made(sides, "option", { value: "encoder" }, "source");
  made(sides, "option", { value: "decoder" }, "translation");
  byId("attention-sentence").addEventListener("change", () => { cell = [0, 0]; word = 0; newSentence(); });
  for (const id of ["cross-layer", "cross-head"]) byId(id).addEventListener("change", drawCross);
  for (const id of ["self-layer", "self-head"]) byId(id).addEventListener("change", drawSelf);
  sides.addEventListener("change", () => { word = 0; newSide(); });
  newSentence();
})();
