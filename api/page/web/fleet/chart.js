// A small chart of the last minutes, with its newest value: a line, or bars of what was counted.

import { html } from "../vendor/htm-preact-3.1.1.js";

const WIDTH = 240;
const HEIGHT = 56;
const POINTS = 120;
const LONGEST_GAP = 4; // seconds without a document, as while the page was hidden

// Returns one value for each of POINTS equal parts of the time; null where nothing is known.
function buckets(times, values, span, joined) {
  const found = new Array(POINTS).fill(null);
  const end = times.at(-1);
  times.forEach((time, at) => {
    const place = POINTS - 1 - Math.floor(((end - time) / span) * POINTS);
    if (values[at] !== null && place >= 0) found[place] = joined(found[place] ?? 0, values[at]);
  });
  return found;
}

const across = (at) => ((at + 0.5) / POINTS) * WIDTH;
const up = (value, top) => HEIGHT - 2 - (value / top) * (HEIGHT - 6);

// Returns the strokes of the line, each as its points.
function strokes(points, top, span) {
  const gap = Math.max(2, Math.ceil((LONGEST_GAP / span) * POINTS));
  const found = [];
  let last = -Infinity;
  points.forEach((value, at) => {
    if (value === null) return;
    if (at - last > gap) found.push([]);
    found.at(-1).push(`${across(at).toFixed(1)} ${up(value, top).toFixed(1)}`);
    last = at;
  });
  return found;
}

function Line({ points, top, span }) {
  const drawn = strokes(points, top, span);
  const under = (stroke) => {
    const [first, last] = [stroke[0], stroke.at(-1)].map((point) => point.split(" ")[0]);
    return `M${first} ${HEIGHT}L${stroke.join("L")}L${last} ${HEIGHT}Z`;
  };
  return html`<path d=${drawn.map(under).join("")} class="area" />
    <path d=${drawn.map((stroke) => `M${stroke.join("L")}h1`).join("")} class="line" />`;
}

function Bars({ points, top }) {
  const drawn = points.map((value, at) => (value ? `M${across(at).toFixed(1)} ${HEIGHT - 1}V${up(value, top).toFixed(1)}` : ""));
  return html`<path d=${drawn.join("")} class="bars" />`;
}

/** @param {{title: string, shown: string, least: number, times: number[], values: (number | null)[], span: number, counted?: boolean}} props
 * `shown` is the newest value as text, `least` the least value at the top, `span` the time that is shown, in seconds.
 * `counted` values are added up and drawn as bars; of others, a line shows the largest. */
export function Chart({ title, shown, least, times, values, span, counted = false }) {
  const points = times.length ? buckets(times, values, span, counted ? (one, other) => one + other : Math.max) : [];
  const top = Math.max(least, ...points);
  return html`<figure class="chart">
    <figcaption>${title} <b>${shown}</b></figcaption>
    <svg viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label=${`${title} over ${Math.round(span)} seconds, ${counted ? "in all" : "now"} ${shown}`}>
      <path d=${`M0 ${HEIGHT - 1}H${WIDTH}`} class="axis" />
      <${counted ? Bars : Line} points=${points} top=${top} span=${span} />
    </svg>
  </figure>`;
}
