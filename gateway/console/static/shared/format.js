// Numbers and times as people read them.
const COUNT = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const count = (value) => COUNT.format(value);
export const short = (value) => SHORT.format(value);

/** Milliseconds, in the unit that suits them. */
export function duration(ms) {
  if (ms == null) return "–";
  if (ms < 1) return `${ms.toFixed(2)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`;
  return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
}

/** An amount to the cent, or below 1 in three figures: one answer costs a part of a cent. */
export function money(amount, currency) {
  const digits = amount < 1 ? { maximumSignificantDigits: 3 } : {};
  return new Intl.NumberFormat("en", { style: "currency", currency, ...digits }).format(amount);
}

/** Joules, in the unit that suits them. */
export function energy(joules) {
  const [value, unit] = joules < 1 ? [joules * 1e3, "mJ"] : joules < 1e3 ? [joules, "J"] : [joules / 1e3, "kJ"];
  return `${Number(value.toPrecision(3))} ${unit}`;
}

/** How long ago a Unix time was. */
export function ago(unixS, nowS = Date.now() / 1000) {
  const s = Math.max(0, Math.round(nowS - unixS));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 172_800) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86_400)} days`;
}

export const clock = (unixS) => new Date(unixS * 1000).toLocaleTimeString("en-GB");
export const date = (unixS) => new Date(unixS * 1000).toISOString().slice(0, 16).replace("T", " ");
