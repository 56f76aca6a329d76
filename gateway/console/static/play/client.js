// The one socket of this page, opened with a ticket by the same SDK that applications use.
import { connect } from "../vendor/lanewise.js";
import { tenant } from "../shared/api.js";
import { effect } from "../vendor/preact.js";
import { site, tenantKey } from "../shared/site.js";

let connecting = null;

effect(() => {
  tenantKey.value; // another key: another socket
  connecting?.then((client) => client.close(), () => {});
  connecting = null;
});

/** The client; rejects with an error that says why there is none. */
export function client() {
  connecting ??= connect({ url: location.origin + site.value.api, ticket: newTicket, maxRetries: 3 });
  connecting.catch(() => (connecting = null));
  return connecting;
}

async function newTicket() {
  return JSON.parse(await tenant("POST", "socket_tickets")).ticket;
}
