"use strict";
// Everything here is an addition: without it the page says the same in tables.

function readCells(target) {
  const data = JSON.parse(document.getElementById(target.dataset.values).textContent);
  const output = document.getElementById(target.dataset.output);
  const [left, top, width, height] = target.dataset.frame.split(" ").map(Number);
  const rows = data.taps.length, columns = data.positions.length;
  const cell = target.firstElementChild;
  let row = 0, column = 0;

  Object.assign(target.style, {
    left: 100 * left + "%", top: 100 * top + "%",
    width: 100 * width + "%", height: 100 * height + "%",
  });
  target.hidden = output.hidden = false;

  function words(value) {
    if (value === null) return "not compared";
    if (value === 0) return "bitwise equal";
    if (typeof value !== "number") return "relative L2 " + value;
    const plain = value >= 1e-3 && value < 1e3;
    return "relative L2 " + (plain ? value.toPrecision(3) : value.toExponential(2));
  }
  function show() {
    Object.assign(cell.style, {
      left: 100 * column / columns + "%", top: 100 * row / rows + "%",
      width: 100 / columns + "%", height: 100 / rows + "%",
    });
    cell.hidden = false;
    output.textContent =
      data.taps[row] + ", position " + data.positions[column] + ": " + words(data.values[row][column]);
  }
  function keep(value, count) { return Math.min(count - 1, Math.max(0, value)); }

  target.addEventListener("pointermove", (event) => {
    const box = target.getBoundingClientRect();
    row = keep(Math.floor((event.clientY - box.top) / box.height * rows), rows);
    column = keep(Math.floor((event.clientX - box.left) / box.width * columns), columns);
    show();
  });
  target.addEventListener("focus", show);
  target.addEventListener("keydown", (event) => {
    const steps = {
      ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1],
      PageUp: [-10, 0], PageDown: [10, 0], Home: [0, -columns], End: [0, columns],
    };
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    row = keep(row + step[0], rows);
    column = keep(column + step[1], columns);
    show();
  });
}

function filterTaps(input) {
  const rows = [...document.querySelectorAll("#taps-table tbody tr")];
  const output = document.getElementById("tap-count");
  input.closest(".filter").hidden = false;
  input.addEventListener("input", () => {
    const wanted = input.value.trim().toLowerCase();
    let shown = 0;
    for (const row of rows) {
      row.hidden = !row.firstElementChild.textContent.toLowerCase().includes(wanted);
      shown += row.hidden ? 0 : 1;
    }
    output.textContent = shown + " of " + rows.length + " taps";
  });
}

// Only what really scrolls is a stop for the Tab key.
function watchOverflow(element) {
  new ResizeObserver(() => {
    element.tabIndex = element.scrollWidth > element.clientWidth ? 0 : -1;
  }).observe(element);
}

document.querySelectorAll(".scroll").forEach(watchOverflow);
document.querySelectorAll(".cells").forEach(readCells);
document.querySelectorAll("#tap-filter").forEach(filterTaps);
