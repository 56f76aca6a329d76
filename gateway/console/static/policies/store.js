// The policies of the gateway and the draft in the editor, as signals.
import { batch, computed, signal } from "../vendor/preact.js";
import { admin } from "../shared/api.js";
import { address, showOptions } from "../shared/address.js";

const TEMPLATE = `# What is left out is as in the default policy. docs/policies.md has every field.
version = "my-policy"

# The first rule that holds decides.
[[rules]]
name = "refactorings-go-fast"
when = { kinds = ["refactor"] }
route = "fast"
fallback = ["deep"]
`;

export const versions = signal(null); // GET /admin/policies; null before it came
export const error = signal(null);
export const draft = signal("");
const kept = signal(""); // the draft as it was last loaded or stored: what differs exists nowhere else
export const checked = signal(null); // { text, valid, problems, warnings }: what the gateway last said of a draft
export const isChecked = computed(() => checked.value?.text === draft.value); // not while it is being checked anew
export const isValid = computed(() => isChecked.value && checked.value.valid); // as it stands
export const validDraft = signal(null); // the last draft that was valid
export const base = signal(null); // { version, document }: what the draft is compared with
export const audit = signal([]);

/** Loads everything anew; the draft stays, unless there is none yet. */
export async function load() {
  try {
    const [found, lines] = await Promise.all([admin("GET", "policies"), admin("GET", "policies/audit?limit=50")]);
    const { document, fault } = await documentOf(found.active);
    batch(() => {
      error.value = fault;
      versions.value = found;
      audit.value = lines;
      base.value = { version: found.active, document };
      if (!draft.value) kept.value = draft.value = (found.active && document) || TEMPLATE;
    });
    takeRule();
  } catch (fault) {
    error.value = fault;
  }
}

/** The document in force; one that Redis has lost must not hide the way back to another. */
async function documentOf(version) {
  try {
    return { document: (await admin("GET", `policies/${version}`)).document, fault: null };
  } catch (fault) {
    return { document: "", fault };
  }
}

/** Puts a rule that a decision was made into, which came in the address, before the others. */
function takeRule() {
  const rule = address.value.options.get("rule");
  if (!rule) return;
  showOptions({}); // it is taken once
  const first = draft.value.indexOf("[[rules]]");
  const at = first < 0 ? draft.value.length : first;
  draft.value = `${draft.value.slice(0, at)}${rule}\n\n${draft.value.slice(at)}`;
}

/** Stores the draft as the next version; nothing changes before it is activated. */
export async function storeDraft(comment) {
  const document = draft.value;
  const { version } = await admin("POST", "policies", { document, name: "console", comment });
  kept.value = document;
  return version;
}

/** What an admin calls a version; 0 is what stands in the configuration. */
export const named = (version) => (version ? `v${version}` : "the configured policy");

/** Asks before a policy takes the place of the one in force, which decides for all traffic at once. */
export function mayReplace(what) {
  return confirm(`Put ${what} in force instead of ${named(versions.value.active)}? It decides for everybody's tasks at once.`);
}

/** Puts a version in force, unless another admin changed what is in force since it was loaded. */
export async function activate(version, comment) {
  await admin("POST", `policies/${version}/activate`, { expected: versions.value.active, comment });
  await load();
}

export function mayRollBack() {
  const { active } = versions.value;
  return confirm(`Roll back ${named(active)}? What was in force before it decides for everybody's tasks at once.`);
}

export async function rollBack(comment) {
  await admin("POST", "policies/rollback", { expected: versions.value.active, comment });
  await load();
}

export async function shadow(version) {
  await admin("POST", "policies/shadow", { version });
  await load();
}

/** Takes a version as the draft; one that was typed and is stored nowhere only if that is meant so. */
export async function open(version) {
  const { document } = await admin("GET", `policies/${version}`);
  const isLost = draft.value !== kept.value && draft.value !== document;
  if (isLost && !confirm(`Replace the draft by v${version}? What you wrote is not stored.`)) return;
  kept.value = draft.value = document;
}
