// Line charts over the history of the fleet, with uPlot.

import { html, useEffect, useRef } from "../vendor/htm-preact-3.1.1.js";

const HEIGHT = 190;
const COLOURS = 6;

// Resolves colours of the stylesheet, which differ between light and dark.
function colour(place, name) {
  const probe = document.createElement("span");
  probe.className = name;
  place.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function options(place, { names, unit, top }, width) {
  const axis = { stroke: colour(place, "chart-text"), grid: { stroke: colour(place, "chart-grid"), width: 1 } };
  const lines = names.map((name, at) => ({
    label: name,
    stroke: colour(place, `chart-line-${at % COLOURS}`),
    width: 2,
    points: { show: false },
    value: (_, value) => (value == null ? "–" : `${Number(value.toPrecision(3))}${unit}`),
  }));
  return {
    width,
    height: HEIGHT,
    series: [{ value: "{HH}:{mm}:{ss}" }, ...lines],
    axes: [
      { ...axis, values: [[60, "{HH}:{mm}"], [1, "{HH}:{mm}:{ss}"]].map(([step, form]) => [step, form, null, null, null, null, null, null, 1]) },
      { ...axis, size: 56, values: (_, values) => values.map((value) => `${value}${unit}`) },
    ],
    scales: { y: { range: (_, least, most) => [0, Math.max(top, (most ?? 0) * 1.1)] } },
    legend: { live: false },
    cursor: { drag: { x: false, y: false } },
  };
}

// `rows` are the values of each line over `times` (Unix seconds), `top` is the least value at the top of the axis.
// `theme` is anything that changes with the colours.
export function Chart({ title, unit, top, times, names, rows, theme }) {
  const place = useRef(null);
  const drawn = useRef(null);
  const newest = useRef(null);
  newest.current = [times, ...rows];
  const shape = names.join("\n");
  useEffect(() => {
    const box = place.current;
    const plot = new uPlot(options(box, { names, unit, top }, box.clientWidth), newest.current, box);
    drawn.current = plot;
    const sized = new ResizeObserver(() => plot.setSize({ width: box.clientWidth, height: HEIGHT }));
    sized.observe(box);
    return () => {
      sized.disconnect();
      plot.destroy();
    };
  }, [shape, theme]);
  useEffect(() => drawn.current?.setData(newest.current));
  const last = rows.map((values, at) => `${names[at]} ${values.at(-1) ?? "none"}${unit}`).join(", ");
  return html`<figure class="chart">
    <figcaption>${title}</figcaption>
    <div ref=${place} role="img" aria-label=${`${title}, now: ${last || "nothing"}`}></div>
  </figure>`;
}
