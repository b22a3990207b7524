"use strict";
(function () {
  const records = JSON.parse(document.getElementById("records").textContent);

  // Sorting: a click on a header sorts its table's rows by data-sort or by text.
  const key = (row, column) => {
    const cell = row.cells[column];
    const text = cell.dataset.sort === undefined ? cell.textContent.trim() : cell.dataset.sort;
    const value = parseFloat(text.replace("−", "-"));
    return text === "" ? [2, 0] : Number.isNaN(value) ? [1, text] : [0, value];
  };
  const compare = (a, b) => a[0] - b[0] || (a[1] < b[1] ? -1 : a[1] > b[1] ? 1 : 0);
  document.querySelectorAll("table.sortable thead th").forEach((header) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    header.append(button);
    button.addEventListener("click", () => {
      const body = header.closest("table").tBodies[0];
      const down = header.getAttribute("aria-sort") === "ascending";
      header.parentNode.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
      header.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...body.rows].map((row) => [key(row, header.cellIndex), row]);
      // Rows without a value stay last, whichever way the others go.
      rows.sort((a, b) => (a[0][0] === 2 || b[0][0] === 2) ? a[0][0] - b[0][0] : (down ? -1 : 1) * compare(a[0], b[0]));
      rows.forEach(([, row]) => body.append(row));
    });
  });

  // Hover, focus or tap on a number shows the runs behind it.
  const panel = document.getElementById("panel");
  const show = (button) => {
    const record = records[button.dataset.record];
    const title = document.createElement("b");
    title.textContent = record.title;
    const list = document.createElement("dl");
    record.lines.forEach(([name, value]) => {
      const term = document.createElement("dt");
      const text = document.createElement("dd");
      term.textContent = name;
      text.textContent = value;
      list.append(term, text);
    });
    panel.replaceChildren(title, list);
    panel.hidden = false;
    button.setAttribute("aria-describedby", "panel");
    const place = button.getBoundingClientRect();
    const left = Math.min(place.left, document.documentElement.clientWidth - panel.offsetWidth - 8);
    panel.style.left = Math.max(4, left) + window.scrollX + "px";
    panel.style.top = place.bottom + window.scrollY + 4 + "px";
  };
  const hide = (button) => { panel.hidden = true; button.removeAttribute("aria-describedby"); };
  document.querySelectorAll("button[data-record]").forEach((button) => {
    button.addEventListener("mouseenter", () => show(button));
    button.addEventListener("focus", () => show(button));
    button.addEventListener("click", () => show(button));
    button.addEventListener("mouseleave", () => hide(button));
    button.addEventListener("blur", () => hide(button));
  });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") panel.hidden = true; });

  // Filters hide what belongs to another data set or variant.
  const filters = [...document.querySelectorAll("select[data-filter]")];
  const apply = () => {
    document.querySelectorAll("[data-dataset], [data-variant]").forEach((element) => {
      const away = filters.some((filter) => {
        const own = element.dataset[filter.dataset.filter];
        return filter.value !== "" && own !== undefined && own !== "" && own !== filter.value;
      });
      element.classList.toggle("hidden", away);
    });
  };
  filters.forEach((filter) => filter.addEventListener("change", apply));

  // The maze's belief, step by step.
  const source = document.getElementById("belief-data");
  if (!source) return;
  const belief = JSON.parse(source.textContent);
  const svg = document.querySelector("#maze-player svg");
  const make = (name, attributes) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    Object.entries(attributes).forEach(([k, v]) => element.setAttribute(k, v));
    return element;
  };
  const moving = make("g", {});
  svg.append(moving);
  const slider = document.getElementById("maze-step");
  const choice = document.getElementById("maze-trajectory");
  const label = document.getElementById("maze-time");
  const pose = (values, colour) => {
    const [x, y, dx, dy] = values;
    moving.append(
      make("circle", { cx: x, cy: belief.height - y, r: belief.height / 45, fill: colour }),
      make("line", { x1: x, y1: belief.height - y, x2: x + dx, y2: belief.height - y - dy, stroke: colour, "stroke-width": belief.height / 90 }));
  };
  const draw = () => {
    const run = belief.trajectories[choice.value];
    const t = Math.min(Number(slider.value), run.truth.length - 1);
    moving.replaceChildren();
    run.particles[t].forEach(([x, y]) => moving.append(
      make("circle", { cx: x, cy: belief.height - y, r: belief.height / 80, fill: belief.colours[2], "fill-opacity": 0.6 })));
    if (run.exact.length > t) {
      const [x, y] = run.exact[t];
      moving.append(make("circle", { cx: x, cy: belief.height - y, r: belief.height / 28, fill: "none",
        stroke: belief.colours[3], "stroke-width": belief.height / 140 }));
    }
    pose(run.truth[t], belief.colours[0]);
    pose(run.prediction[t], belief.colours[1]);
    label.textContent = "t = " + t;
  };
  slider.addEventListener("input", draw);
  choice.addEventListener("change", draw);
  let timer = null;
  const play = document.getElementById("maze-play");
  play.addEventListener("click", () => {
    if (timer) { clearInterval(timer); timer = null; play.textContent = "Play"; return; }
    play.textContent = "Pause";
    timer = setInterval(() => {
      slider.value = (Number(slider.value) + 1) % (Number(slider.max) + 1);
      draw();
    }, 180);
  });
  draw();
})();
