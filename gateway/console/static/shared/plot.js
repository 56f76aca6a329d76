// A chart over time. Its colours are those of the legend's swatches, so that themes hold for both.
import { html, useEffect, useRef } from "../vendor/preact.js";
import { uPlot } from "../vendor/uplot.js";

const HEIGHT = 150;
const colour = (element) => getComputedStyle(element).color;

/** `times`: Unix seconds. `series`: [{ name, kind, values }]; `kind` names a colour. */
export function Plot({ title, times, series, unit, timeFormat = "{HH}:{mm}:{ss}" }) {
  const place = useRef(null);
  const chart = useRef(null);
  const names = series.map(({ name, kind }) => `${name} ${kind}`).join();

  useEffect(() => {
    const make = () => {
      chart.current?.destroy();
      chart.current = draw(place.current, series, times, timeFormat);
    };
    make();
    const resized = new ResizeObserver(() => {
      if (place.current) chart.current.setSize({ width: place.current.clientWidth, height: HEIGHT });
    });
    resized.observe(place.current);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", make);
    const themed = new MutationObserver(make);
    themed.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    return () => {
      resized.disconnect();
      themed.disconnect();
      dark.removeEventListener("change", make);
      chart.current.destroy();
      chart.current = null;
    };
  }, [names]);

  useEffect(() => {
    chart.current?.setData([times, ...series.map(({ values }) => values)]);
  }, [times]);

  const latest = series.map(({ name, values }) => `${name} ${Math.round(values.at(-1) ?? 0)}`).join(", ");
  return html`
    <figure class="plot">
      <figcaption class="row wrap">
        <strong>${title}</strong>
        ${series.map(({ name, kind }) => html`<span class="legend"><i class=${`swatch ${kind}`}></i>${name}</span>`)}
        <span class="quiet">${unit}</span>
      </figcaption>
      <div ref=${place} role="img" aria-label=${`${title}; now: ${latest || "nothing"}`}></div>
    </figure>
  `;
}

function draw(place, series, times, timeFormat) {
  const figure = place.closest("figure");
  const text = colour(figure.querySelector(".quiet"));
  const swatches = [...figure.querySelectorAll(".swatch")];
  const axis = { stroke: text, grid: { stroke: text, width: 0.3 }, ticks: { show: false }, font: "11px sans-serif" };
  const options = {
    width: place.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    cursor: { show: false },
    scales: { y: { range: (_, __, max) => [0, Math.max(max * 1.1, 1)] } },
    axes: [{ ...axis, values: timeFormat, space: 90, size: 28 }, { ...axis, size: 46, values: (_, ticks) => ticks.map(short) }],
    series: [{}, ...series.map((_, index) => ({ stroke: colour(swatches[index]), width: 1.5, points: { show: false } }))],
  };
  return new uPlot(options, [times, ...series.map(({ values }) => values)], place);
}

const short = (value) => (value >= 1000 ? `${value / 1000}k` : `${value}`);
