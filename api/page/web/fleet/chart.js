// A small line chart of the last minutes, with its newest value.

import { html } from "../vendor/htm-preact-3.1.1.js";

const WIDTH = 240;
const HEIGHT = 56;
const POINTS = 120;

// Returns the largest value of each of POINTS equal parts of the time; null where nothing is known.
function buckets(times, values, span) {
  const found = new Array(POINTS).fill(null);
  const end = times.at(-1);
  times.forEach((time, at) => {
    const place = POINTS - 1 - Math.floor(((end - time) / span) * POINTS);
    if (values[at] !== null && place >= 0) found[place] = Math.max(found[place] ?? 0, values[at]);
  });
  return found;
}

function line(points, top) {
  let drawn = "";
  let pen = false;
  points.forEach((value, at) => {
    if (value === null) {
      pen = false;
      return;
    }
    const x = ((at + 0.5) / POINTS) * WIDTH;
    const y = HEIGHT - 2 - (value / top) * (HEIGHT - 6);
    drawn += `${pen ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
    // A value alone is a short line.
    if (!pen) drawn += `h${WIDTH / POINTS}`;
    pen = true;
  });
  return drawn;
}

/** @param {{title: string, shown: string, least: number, times: number[], values: (number | null)[], span: number}} props
 * `shown` is the newest value as text, `least` the least value at the top, `span` the time that is shown, in seconds. */
export function Chart({ title, shown, least, times, values, span }) {
  const points = times.length ? buckets(times, values, span) : [];
  const top = Math.max(least, ...points);
  return html`<figure class="chart">
    <figcaption>${title} <b>${shown}</b></figcaption>
    <svg viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label=${`${title} over ${Math.round(span)} seconds, now ${shown}`}>
      <path d=${`M0 ${HEIGHT - 1}H${WIDTH}`} class="axis" />
      <path d=${line(points, top)} class="line" />
    </svg>
  </figure>`;
}
