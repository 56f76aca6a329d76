// *Live*: first what is wrong, then how the gateway stands, then what it decides.
import { html, useEffect } from "../vendor/preact.js";
import { adminKey } from "../shared/site.js";
import { Loading, NoKey } from "../shared/states.js";
import { Charts } from "./charts.js";
import { Decisions } from "./decisions.js";
import { Engines } from "./engines.js";
import { connection, follow, gateway } from "./feed.js";
import { Pools } from "./pools.js";
import { Problems } from "./problems.js";
import { Wafers } from "./wafers.js";
import { count } from "../shared/format.js";

export function Page() {
  if (!adminKey.value) return html`<h1>Live</h1><${NoKey} kind="admin" />`;
  return html`<h1 class="hidden">Live</h1><${Watched} key=${adminKey.value} />`;
}

function Watched() {
  useEffect(follow, []);
  const hasBegun = gateway.value !== null;
  return html`
    <${Problems} />
    ${!hasBegun && connection.value.state === "connecting" && html`<${Loading} what="the gateway" />`}
    ${hasBegun &&
    html`
      <${Summary} />
      <${Charts} />
      <div class="grid">
        <${Engines} />
        <${Pools} />
      </div>
      <${Decisions} />
      <${Wafers} />
    `}
  `;
}

function Summary() {
  const now = gateway.value;
  const figures = [
    ["Tasks running", count(now.running)],
    ["Sockets", count(now.connections)],
    ["Workers", count(now.workers)],
    ["Gateways", count(now.num_gateways)],
    ["Policy", now.policy],
    ["Shadow", now.shadow ? `v${now.shadow}` : "none"],
  ];
  return html`
    <section class="card" aria-label="Summary">
      <dl class="figures">${figures.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    </section>
  `;
}
