// How full something is, as a bar with its figures; a `max` of null is not known.
import { html } from "../vendor/preact.js";
import { short } from "./format.js";

export const Bar = ({ name, value, max, note = "" }) => html`
  <div class="bar">
    <span>${name}</span>
    <meter aria-label=${name} min="0" max=${max || 1} value=${value}></meter>
    <span class="quiet">${short(value)} of ${max == null ? "?" : short(max)} ${note}</span>
  </div>
`;
