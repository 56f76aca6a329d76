// A chart over time. Its lines stretch with the page, and its colours are those of the legend's swatches.
import { html } from "../vendor/preact.js";
import { clock } from "./format.js";

const TOP = 6;
const BOTTOM = 128; // of the lines; the times stand below
const SCALE = 1000; // of the lines' own coordinates
const NUM_TIMES = 4;
const NUM_GRID_LINES = 3;

/** `times`: Unix seconds. `series`: [{ name, kind, values }]; `kind` names a colour. */
export function Plot({ title, times, series, unit, timeText = clock }) {
  const most = Math.max(1, ...series.map(({ values }) => values.reduce((a, b) => Math.max(a, b), 0))) * 1.1;
  const latest = series.map(({ name, values }) => `${name} ${Math.round(values.at(-1) ?? 0)}`).join(", ");
  return html`
    <figure class="plot">
      <figcaption class="row wrap">
        <strong>${title}</strong>
        ${series.map(({ name, kind }) => html`<span class="legend"><i class=${`swatch ${kind}`}></i>${name}</span>`)}
        <span class="quiet">${unit}</span>
      </figcaption>
      <svg role="img" aria-label=${`${title}; now: ${latest || "nothing"}`}>
        ${gridValues(most).map((value) => html`<${GridLine} value=${value} most=${most} />`)}
        <svg y=${TOP} width="100%" height=${BOTTOM - TOP} viewBox=${`0 0 ${SCALE} ${SCALE}`} preserveAspectRatio="none">
          ${series.map(({ kind, values }) => html`<path class=${kind} d=${line(times, values, most)} />`)}
        </svg>
        ${timesShown(times).map(([at, share]) => html`<text x=${`${share * 100}%`} y=${BOTTOM + 16} class=${side(share)}>${timeText(at)}</text>`)}
      </svg>
    </figure>
  `;
}

function GridLine({ value, most }) {
  const y = BOTTOM - ((BOTTOM - TOP) * value) / most;
  return html`<line x2="100%" y1=${y} y2=${y} /><text y=${y - 2}>${value >= 1000 ? `${value / 1000}k` : value}</text>`;
}

/** Round values from 0 up, about as many as there are to be lines. */
function gridValues(most) {
  const magnitude = 10 ** Math.floor(Math.log10(most / NUM_GRID_LINES));
  const step = [1, 2, 5, 10].map((each) => each * magnitude).find((each) => most / each <= NUM_GRID_LINES + 1);
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, index) => Number((index * step).toPrecision(3)));
}

function line(times, values, most) {
  const place = placed(times);
  const steps = values.map((value, index) => `${Math.round(place(times[index]) * SCALE)} ${Math.round(SCALE * (1 - value / most))}`);
  return steps.length > 1 ? `M${steps.join("L")}` : "";
}

const placed = (times) => (at) => (at - times[0]) / (times.at(-1) - times[0] || 1);

function timesShown(times) {
  const place = placed(times);
  const indexes = Array.from({ length: NUM_TIMES }, (_, index) => Math.round((index * (times.length - 1)) / (NUM_TIMES - 1)));
  return times.length < 2 ? [] : [...new Set(indexes)].map((index) => [times[index], place(times[index])]);
}

const side = (share) => (share < 0.05 ? "first" : share > 0.95 ? "last" : "between");
