// What this address serves, and the keys. Keys live in this tab's memory and nowhere else.
import { signal } from "../vendor/preact.js";

export const site = signal({ version: "", api: "/v1", serves_admin: true });
export const tenantKey = signal("");
export const adminKey = signal("");

export async function fetchSite() {
  const answer = await fetch("site.json");
  if (!answer.ok) return;
  site.value = await answer.json();
  // They are no secrets: they stand in everybody's copy of this program, and hold on loopback only.
  tenantKey.value = site.value.development_key ?? "";
  adminKey.value = site.value.development_admin_key ?? "";
}
