// The page and its options, as they stand after "#": "#play?prompt=...". No key ever goes there.
import { signal } from "../vendor/preact.js";

function read() {
  const [page, query = ""] = location.hash.slice(1).split("?", 2);
  return { page: page || "play", options: new URLSearchParams(query) };
}

export const address = signal(read());
addEventListener("hashchange", () => (address.value = read()));

/** The link to a page with options, for `href`. */
export function linkTo(page, options = {}) {
  const query = new URLSearchParams(options).toString();
  return query ? `#${page}?${query}` : `#${page}`;
}

/** Shows options in the address bar without loading anything; the back button passes over them. */
export function showOptions(options) {
  history.replaceState(null, "", linkTo(address.value.page, options));
  address.value = read();
}
