// What a page shows while it has nothing to show: it waits, it failed, there is nothing, no key.
import { html } from "../vendor/preact.js";
import { wantsKey } from "./key_dialog.js";

export const Loading = ({ what }) => html`<p class="state" role="status">Loading ${what} …</p>`;

export const Empty = ({ title, children }) => html`
  <div class="state"><strong>${title}</strong><p class="quiet">${children}</p></div>
`;

export function Fault({ error, again }) {
  return html`
    <div class="state fault" role="alert">
      <strong>${error.message}</strong>
      <div class="row">
        ${again && html`<button onClick=${again}>Try again</button>`}
        ${error.status === 401 && html`<button onClick=${() => (wantsKey.value = "admin")}>Use another key</button>`}
      </div>
    </div>
  `;
}

export const NoKey = ({ kind }) => html`
  <div class="state">
    <strong>This page needs ${kind === "admin" ? "an admin key" : "an API key"}.</strong>
    <p class="quiet">
      ${kind === "admin"
        ? "It is configured as admin.keys, or in LANEWISE_ADMIN_KEY."
        : "An admin makes one on the page Tenants, or with `lanewise keys create`."}
    </p>
    <button class="primary" onClick=${() => (wantsKey.value = kind)}>Enter the key</button>
  </div>
`;
