"use strict";
(function () {
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

  // Filters hide what belongs to another data set or variant.
  const filters = [...document.querySelectorAll("select[data-filter]")];
  const apply = () => document.querySelectorAll("[data-dataset], [data-variant]").forEach((element) => {
    const away = filters.some((filter) => {
      const own = element.dataset[filter.dataset.filter];
      return filter.value !== "" && own && own !== filter.value;
    });
    element.classList.toggle("hidden", away);
  });
  filters.forEach((filter) => filter.addEventListener("change", apply));

  // A link to a row in a closed table opens it.
  const open = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const closed = target && target.closest("details:not([open])");
    if (closed) { closed.open = true; target.scrollIntoView(); }
  };
  window.addEventListener("hashchange", open);
  open();

  // The maze's belief, step by step.
  const source = document.getElementById("belief-data");
  if (!source) return;
  const { colours, mazes } = JSON.parse(source.textContent);
  const svg = document.querySelector("#maze-player svg");
  const [name, choice, slider, time, play] = ["name", "trajectory", "step", "time", "play"].map((id) => document.getElementById("maze-" + id));
  const make = (parent, kind, attributes) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", kind);
    Object.entries(attributes).forEach(([k, v]) => element.setAttribute(k, v));
    parent.append(element);
    return element;
  };
  let size, moving;
  const maze = () => {
    const grid = mazes[name.value].map;
    size = grid.length;
    svg.setAttribute("viewBox", `0 0 ${grid[0].length} ${size}`);
    svg.replaceChildren();
    grid.forEach((row, r) => row.forEach((cell, c) => {
      if (cell > 0) make(svg, "rect", { x: c, y: r, width: 1, height: 1, fill: cell > 1 ? colours.landmark : colours.wall, "shape-rendering": "crispEdges" });
    }));
    moving = make(svg, "g", {});
    draw();
  };
  const pose = ([x, y, dx, dy], colour) => {
    make(moving, "circle", { cx: x, cy: size - y, r: size / 45, fill: colour });
    make(moving, "line", { x1: x, y1: size - y, x2: x + dx, y2: size - y - dy, stroke: colour, "stroke-width": size / 90 });
  };
  const draw = () => {
    const runs = mazes[name.value].trajectories;
    const run = runs[Math.min(choice.value, runs.length - 1)];
    slider.max = run.truth.length - 1;
    const t = Number(slider.value);
    moving.replaceChildren();
    run.particles[t].forEach(([x, y]) => make(moving, "circle", { cx: x, cy: size - y, r: size / 80, fill: colours.particle, "fill-opacity": 0.6 }));
    if (run.exact.length > t) {
      const [x, y] = run.exact[t];
      make(moving, "circle", { cx: x, cy: size - y, r: size / 28, fill: "none", stroke: colours.exact, "stroke-width": size / 140 });
    }
    pose(run.truth[t], colours.truth);
    pose(run.prediction[t], colours.prediction);
    time.textContent = "t = " + t;
  };
  slider.addEventListener("input", draw);
  choice.addEventListener("change", draw);
  name.addEventListener("change", maze);
  let timer = null;
  play.addEventListener("click", () => {
    if (timer) { clearInterval(timer); timer = null; play.textContent = "Play"; return; }
    play.textContent = "Pause";
    timer = setInterval(() => {
      slider.value = (Number(slider.value) + 1) % (Number(slider.max) + 1);
      draw();
    }, 180);
  });
  maze();
})();
