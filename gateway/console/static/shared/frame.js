// What surrounds every page: its name, the others, the keys and the theme.
import { html, signal, useEffect, useRef } from "../vendor/preact.js";
import { linkTo } from "./address.js";
import { wantsKey } from "./key_dialog.js";
import { adminKey, site, tenantKey } from "./site.js";

const THEMES = ["system", "light", "dark"];
const theme = signal("system");

function nextTheme() {
  theme.value = THEMES[(THEMES.indexOf(theme.value) + 1) % THEMES.length];
  document.documentElement.dataset.theme = theme.value;
}

export function Frame({ pages, current, children }) {
  const main = useRef(null);
  useEffect(() => {
    document.title = `${current.title} · Lanewise`;
  }, [current]);
  const kind = current.admin ? "admin" : "tenant";
  const key = current.admin ? adminKey.value : tenantKey.value;
  const skip = (event) => {
    event.preventDefault();
    main.current.focus();
  };
  return html`
    <a class="skip" href="#content" onClick=${skip}>Skip to the page</a>
    <header class="top">
      <a class="brand" href=${linkTo("play")}><img src="icon.svg" alt="" width="20" height="20" />Lanewise</a>
      <nav aria-label="Pages">
        ${pages.map(
          (page) => html`<a href=${linkTo(page.name)} aria-current=${page === current ? "page" : null}>${page.title}</a>`,
        )}
      </nav>
      <span class="grow"></span>
      <button class="plain small" onClick=${() => (wantsKey.value = kind)}>
        ${key ? html`<span class="dot good"></span>` : html`<span class="dot bad"></span>`}
        ${kind === "admin" ? "Admin key" : "API key"}
      </button>
      <button class="plain small" onClick=${nextTheme} aria-label=${`Theme: ${theme.value}. Change it.`}>
        ${{ system: "◐", light: "○", dark: "●" }[theme.value]}
      </button>
    </header>
    <main id="content" tabindex="-1" ref=${main}>${children}</main>
    <footer class="quiet">Lanewise ${site.value.version} · <a href="vendor/LICENSES.txt">licences</a></footer>
  `;
}
