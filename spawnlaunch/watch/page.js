// Zoom and values: the charts of a launch share their time axis. Without this the page is whole.
"use strict";
const DRAWN = "http://www.w3.org/2000/svg", MOST = 8, LEAST_PIXELS = 5;
const values = document.body.appendChild(document.createElement("div"));
values.id = "values";
values.hidden = true;

function made(name, parent, attributes) {
  const one = parent.appendChild(document.createElementNS(DRAWN, name));
  for (const key in attributes) one.setAttribute(key, attributes[key]);
  return one;
}

function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map(share => share * power).find(step => step >= value) || value;
}

function axis(chart, from, to) { // as charts.times draws it
  const [unit, length] = to - from > 10800 ? ["h", 3600] : to - from > 180 ? ["min", 60] : ["s", 1];
  const step = nice((to - from) / length / 5) * length;
  chart.times.replaceChildren();
  for (let i = Math.ceil(from / step); i * step <= to; i++)
    made("text", chart.times, { x: chart.x(i * step), y: chart.times.dataset.y,
      "text-anchor": "middle" }).textContent = `${+(i * step / length).toPrecision(6)} ${unit}`;
}

function charts(part) {
  let from = 0, to = +part.dataset.until;
  const all = [...part.querySelectorAll(".timed")].map(svg => {
    const plot = svg.querySelector(".plot"), times = svg.querySelector(".times");
    const [left, top, width, height] = plot.getAttribute("viewBox").split(" ").map(Number);
    const cursor = made("line", svg, { class: "cursor", y1: top, y2: top + height, x1: -9, x2: -9 });
    const chart = { svg, plot, times, cursor, left, top, width, height, lines: null };
    chart.x = seconds => left + width * (seconds - from) / (to - from);
    chart.seconds = x => from + (to - from) * Math.min(1, Math.max(0, (x - left) / width));
    return chart;
  });
  const until = to;

  function show(a, b) {
    [from, to] = [a, b];
    part.classList.toggle("zoomed", b - a < until);
    for (const one of all) {
      const { left, top, width, height } = one;
      one.plot.setAttribute("viewBox",
        `${left + width * a / until} ${top} ${width * (b - a) / until} ${height}`);
      axis(one, a, b);
    }
  }

  function points(chart) { // of each line: rank, and places in the whole chart
    return chart.lines ||= [...chart.plot.querySelectorAll("polyline")].map(line => {
      const places = line.getAttribute("points").split(" ").map(each => each.split(",").map(Number));
      return { rank: line.dataset.rank, places };
    });
  }

  function nearest(places, x) {
    let low = 0, high = places.length - 1;
    if (x < places[0][0] - 1 || x > places[high][0] + 1) return null;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (places[middle][0] < x) low = middle; else high = middle;
    }
    return x - places[low][0] < places[high][0] - x ? places[low] : places[high];
  }

  function tell(chart, event, seconds, y) {
    const { low, high, unit, bottom, over } = chart.plot.dataset;
    const x = chart.left + chart.width * seconds / until;
    const found = points(chart).map(({ rank, places }) => ({ rank, place: nearest(places, x) }))
      .filter(each => each.place).sort((a, b) => Math.abs(a.place[1] - y) - Math.abs(b.place[1] - y));
    const shown = found.slice(0, MOST).sort((a, b) => a.place[1] - b.place[1]);
    const told = shown.map(({ rank, place }) => {
      const share = (bottom - place[1]) / (bottom - over);
      const value = +low * (1 - share) + +high * share;
      return `rank ${rank}: ${+value.toPrecision(4)} ${unit}`;
    });
    if (found.length > MOST) told.push(`${found.length - MOST} more ranks`);
    const at = seconds < 600 ? `${seconds.toFixed(1)} s` : `${(seconds / 60).toFixed(1)} min`;
    values.textContent = [`after ${at}`, ...told].join("\n");
    values.hidden = false;
    const { width, height } = values.getBoundingClientRect();
    const side = event.clientX + 14 + width > innerWidth ? -14 - width : 14;
    values.style.left = `${Math.max(0, event.clientX + side)}px`;
    values.style.top = `${Math.max(0, Math.min(event.clientY + 14, innerHeight - height))}px`;
  }

  for (const chart of all) {
    let began = null, box = null;
    const place = event => {
      const { left, top, width } = chart.svg.getBoundingClientRect();
      const wide = chart.svg.viewBox.baseVal.width;
      return [(event.clientX - left) * wide / width, (event.clientY - top) * wide / width];
    };
    const end = () => {
      began = null;
      box?.remove();
      box = null;
    };
    chart.svg.addEventListener("pointerdown", event => {
      if (event.button) return;
      began = place(event)[0];
      chart.svg.setPointerCapture(event.pointerId);
      box = made("rect", chart.svg, { class: "drag", y: chart.top, height: chart.height, width: 0 });
    });
    chart.svg.addEventListener("pointermove", event => {
      const [x, y] = place(event), seconds = chart.seconds(x);
      for (const one of all)
        for (const end of ["x1", "x2"]) one.cursor.setAttribute(end, one.x(seconds));
      tell(chart, event, seconds, y);
      const [a, b] = [chart.seconds(began ?? x), seconds].map(chart.x).sort((a, b) => a - b);
      box?.setAttribute("x", a);
      box?.setAttribute("width", b - a);
    });
    chart.svg.addEventListener("pointerup", event => {
      const x = place(event)[0];
      if (began !== null && Math.abs(x - began) >= LEAST_PIXELS) {
        const [a, b] = [began, x].map(chart.seconds).sort((a, b) => a - b);
        if (b - a > until * 1e-5) show(a, b);
      }
      end();
    });
    chart.svg.addEventListener("pointercancel", end);
    chart.svg.addEventListener("dblclick", () => show(0, until));
    chart.svg.addEventListener("pointerleave", () => {
      values.hidden = true;
      for (const one of all) for (const end of ["x1", "x2"]) one.cursor.setAttribute(end, -9);
    });
  }
  if (all.length) {
    const hint = document.createElement("p");
    hint.className = "hint";
    hint.textContent = "Drag over a chart to zoom all of them; a double click shows the whole time.";
    all[0].svg.before(hint);
  }
}

document.querySelectorAll("[data-until]").forEach(charts);
for (const name of ["beforeprint", "hashchange", "load"])
  addEventListener(name, () => document.querySelectorAll("details").forEach(one => {
    one.open ||= name === "beforeprint" || `#${one.id}` === location.hash;
  }));
