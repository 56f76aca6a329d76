// The frame of the console: what it asks once, the pages, and which of them is shown.
import { render, html } from "./vendor/preact.js";
import { address } from "./shared/address.js";
import { fetchSite, site } from "./shared/site.js";
import { KeyDialog } from "./shared/key_dialog.js";
import { Frame } from "./shared/frame.js";
import { Lazy } from "./shared/lazy.js";

// Each page is a module of its own, loaded when it is first shown.
const PAGES = [
  { name: "play", title: "Play", load: () => import("./play/page.js") },
  { name: "live", title: "Live", load: () => import("./live/page.js"), admin: true },
  { name: "policies", title: "Policies", load: () => import("./policies/page.js"), admin: true },
  { name: "tenants", title: "Tenants", load: () => import("./tenants/page.js"), admin: true },
];

function App() {
  const pages = PAGES.filter((page) => !page.admin || site.value.serves_admin);
  const page = pages.find(({ name }) => name === address.value.page) ?? pages[0];
  return html`
    <${Frame} pages=${pages} current=${page}>
      <${Lazy} key=${page.name} load=${page.load} title=${page.title} />
    <//>
    <${KeyDialog} />
  `;
}

await fetchSite();
const place = document.getElementById("app");
place.replaceChildren(); // what was painted before the scripts came
render(html`<${App} />`, place);
