// Who the admin key is: one that may only read sees no buttons.
import { effect, signal } from "../vendor/preact.js";
import { admin } from "./api.js";
import { adminKey } from "./site.js";

const NOBODY = { name: "", read_only: true };

export const me = signal(null); // null until it is known

effect(() => {
  me.value = null;
  if (!adminKey.value) return;
  const asked = adminKey.value;
  const take = (answer) => asked === adminKey.peek() && (me.value = answer);
  admin("GET", "me").then(take, () => take(NOBODY)); // the page's own requests say what is wrong
});
